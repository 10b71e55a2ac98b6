package validate

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/services/podsync/internal/desired/defaults"
)

// judge completes a pod with one container, of which the YAML of some fields is given,
// and returns what is wrong with it: "path: kind" of each error.
func judge(t *testing.T, spec, container string) []string {
	t.Helper()
	return judged(t, "{name: p, namespace: default, uid: u}", spec, container)
}

func judged(t *testing.T, metadata, spec, container string) []string {
	t.Helper()
	if container != "" && !strings.HasPrefix(container, "[") {
		container = "[{name: c, image: i, " + container + "}]"
	}
	if container == "" {
		container = "[{name: c, image: i}]"
	}
	if spec != "" {
		spec = ", " + spec
	}
	var pod v1.Pod
	if err := yaml.UnmarshalStrict([]byte("{metadata: "+metadata+", spec: {containers: "+container+spec+"}}"), &pod); err != nil {
		t.Fatalf("%s %s: %v", spec, container, err)
	}
	defaults.Pod(&pod)
	var out []string
	for _, err := range Pod(&pod) {
		out = append(out, err.Field+": "+string(err.Type))
	}
	slices.Sort(out)
	return out
}

// row is a part of a pod, of its spec or of its one container, and what is wrong with
// it: path and kind of each error, none when it is empty.
type row struct{ spec, container, want string }

func (r row) check(t *testing.T) {
	t.Helper()
	if got := strings.Join(judge(t, r.spec, r.container), ", "); got != r.want {
		t.Errorf("%s %s\n is judged %q\n     want %q", r.spec, r.container, got, r.want)
	}
}

func TestWhatIsWrongWithAPodsOwnFieldsIsNamedByItsPath(t *testing.T) {
	for _, r := range []row{
		{"", "", ""},
		{"restartPolicy: Sometimes", "", "spec.restartPolicy: FieldValueNotSupported"},
		{"activeDeadlineSeconds: 0", "", "spec.activeDeadlineSeconds: FieldValueInvalid"},
		{"activeDeadlineSeconds: 2147483648", "", "spec.activeDeadlineSeconds: FieldValueInvalid"},
		{"readinessGates: [{conditionType: a.b/c}, {conditionType: a/b/c}]", "", "spec.readinessGates[1].conditionType: FieldValueInvalid"},
		{"schedulingGates: [{name: a}]", "", "spec.schedulingGates: FieldValueForbidden"},
		{"ephemeralContainers: [{name: e, image: i}]", "", "spec.ephemeralContainers: FieldValueForbidden"},
		{"hostname: a.b", "", "spec.hostname: FieldValueInvalid"},
		{"subdomain: A", "", "spec.subdomain: FieldValueInvalid"},
		{"serviceAccountName: A", "", "spec.serviceAccountName: FieldValueInvalid"},
		{"priorityClassName: _", "", "spec.priorityClassName: FieldValueInvalid"},
		{"runtimeClassName: _", "", "spec.runtimeClassName: FieldValueInvalid"},
		{"preemptionPolicy: Soon", "", "spec.preemptionPolicy: FieldValueNotSupported"},
		{"hostnameOverride: a, setHostnameAsFQDN: true", "", "spec.hostnameOverride: FieldValueForbidden"},
		{"hostnameOverride: a, hostNetwork: true", "", "spec.hostnameOverride: FieldValueForbidden"},
		{"hostnameOverride: " + strings.Repeat("a", 65), "", "spec.hostnameOverride: FieldValueInvalid"},
		{"os: {name: plan9}", "", "spec.os.name: FieldValueNotSupported"},
		{"hostPID: true, shareProcessNamespace: true", "", "spec.shareProcessNamespace: FieldValueInvalid"},
		{"hostPID: true, shareProcessNamespace: false", "", ""},
		{"hostUsers: false, hostIPC: true", "", "spec.hostIPC: FieldValueForbidden"},
		{"hostUsers: false, hostNetwork: true, hostPID: true", "", "spec.hostNetwork: FieldValueForbidden, spec.hostPID: FieldValueForbidden"},
	} {
		r.check(t)
	}
	for metadata, want := range map[string]string{
		"{name: p, namespace: default, uid: ../x}": "metadata.uid: FieldValueInvalid",
		"{name: A, namespace: default, uid: u}":    "metadata.name: FieldValueInvalid",
		"{name: p, uid: u}":                        "metadata.namespace: FieldValueRequired",
		"{name: p, namespace: default, uid: u, annotations: {container.apparmor.security.beta.kubernetes.io/d: unconfined}}":  "metadata.annotations[container.apparmor.security.beta.kubernetes.io/d]: FieldValueInvalid",
		"{name: p, namespace: default, uid: u, annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/}}":  "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: FieldValueInvalid",
		"{name: p, namespace: default, uid: u, annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/x}}": "",
	} {
		if got := strings.Join(judged(t, metadata, "", ""), ", "); got != want {
			t.Errorf("%s is judged %q, want %q", metadata, got, want)
		}
	}
}

func TestAPodsNamesAndNameServersAreBounded(t *testing.T) {
	for _, r := range []row{
		{"dnsPolicy: Elsewhere", "", "spec.dnsPolicy: FieldValueNotSupported"},
		{"dnsPolicy: None", "", "spec.dnsConfig.nameservers: FieldValueRequired"},
		{"dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3]}", "", ""},
		{"dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}", "", "spec.dnsConfig.nameservers: FieldValueInvalid"},
		{"dnsConfig: {nameservers: [one]}", "", "spec.dnsConfig.nameservers[0]: FieldValueInvalid"},
		{"dnsConfig: {searches: [., a.b., _x.y, A]}", "", "spec.dnsConfig.searches[3]: FieldValueInvalid"},
		{"dnsConfig: {searches: [" + strings.TrimSuffix(strings.Repeat("a, ", 33), ", ") + "]}", "", "spec.dnsConfig.searches: FieldValueInvalid"},
		{"dnsConfig: {searches: [" + strings.TrimSuffix(strings.Repeat(strings.Repeat("abcdefghi.", 20)+"a, ", 11), ", ") + "]}", "", "spec.dnsConfig.searches: FieldValueInvalid"},
		{"dnsConfig: {options: [{value: a}]}", "", "spec.dnsConfig.options[0]: FieldValueRequired"},
		{"hostAliases: [{ip: 1.2.3.4, hostnames: [a, B]}, {ip: x}]", "", "spec.hostAliases[0].hostnames[1]: FieldValueInvalid, spec.hostAliases[1].ip: FieldValueInvalid"},
	} {
		r.check(t)
	}
}

func TestAPortOfTheHostIsTakenOnceAndIsTheContainersInTheHostsNetwork(t *testing.T) {
	for _, r := range []row{
		{"", "ports: [{containerPort: 80, hostPort: 81}, {containerPort: 82, hostPort: 81, protocol: UDP}]", ""},
		{"", "ports: [{containerPort: 80, hostPort: 81}, {containerPort: 82, hostPort: 81}]", "spec.containers[0].ports[1].hostPort: FieldValueDuplicate"},
		{"", "[{name: a, image: i, ports: [{containerPort: 80, hostPort: 81}]}, {name: b, image: i, ports: [{containerPort: 80, hostPort: 81}]}]", "spec.containers[1].ports[0].hostPort: FieldValueDuplicate"},
		{"hostNetwork: true", "ports: [{containerPort: 80, hostPort: 81}]", "spec.containers[0].ports[0].hostPort: FieldValueInvalid"},
		{"hostNetwork: true", "ports: [{containerPort: 80}]", ""},
	} {
		r.check(t)
	}
}
