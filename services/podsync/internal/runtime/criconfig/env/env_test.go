package env

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/downward"
)

func TestReferencesAreExpandedOnce(t *testing.T) {
	vars := map[string]string{"A": "a", "B": "$(A)", "E": ""}
	lookup := func(n string) (string, bool) { v, ok := vars[n]; return v, ok }
	for in, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "a", "x$(A)y$(A)": "xaya", "$(B)": "$(A)", "$(NONE)": "$(NONE)",
		"$$(A)": "$(A)", "$$$(A)": "$a", "$$$$": "$$", "$": "$", "a$": "a$", "$(": "$(", "$(A": "$(A", "$x": "$x",
		"$(E)": "", "$()": "$()", "$(A)$": "a$", "$($(A))": "$($(A))", "$$x": "$x",
	} {
		if got, err := Expand(in, lookup); got != want || err != nil {
			t.Errorf("Expand(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	if out, err := ExpandAll(nil, vars); out != nil || err != nil {
		t.Error("nil became a list")
	}
}

func TestVariablesThatDoubleTakeNoMemory(t *testing.T) {
	doubling := &v1.Container{Env: []v1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 100)}}}
	for i := range 60 {
		name := fmt.Sprintf("$(V%d)", i)
		doubling.Env = append(doubling.Env, v1.EnvVar{Name: fmt.Sprintf("V%d", i+1), Value: name + name})
	}
	once := &v1.Container{Env: []v1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 500<<10)}, {Name: "V1", Value: strings.Repeat("$(V0)", 100_000)}}}
	wide := &v1.Container{Env: []v1.EnvVar{{Name: "V0", Value: strings.Repeat("x", 1<<20)}}}
	for i := range 1000 {
		wide.Env = append(wide.Env, v1.EnvVar{Name: fmt.Sprintf("W%d", i), Value: "$(V0)"})
	}
	for name, c := range map[string]*v1.Container{"doubling": doubling, "once": once, "wide": wide} {
		if _, err := Build(input(c)); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "variable ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := map[string]string{"A": strings.Repeat("x", 1<<20)}
	for name, args := range map[string][]string{
		"an argument": {strings.Repeat("$(A)", 1000)}, "arguments": slices.Repeat([]string{"$(A)"}, 1000),
	} {
		if _, err := ExpandAll(args, large); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if out, err := ExpandAll([]string{"$(A)", "$(A)"}, large); err != nil || len(out[1]) != 1<<20 {
		t.Errorf("two large arguments: %v", err)
	}
}

func service(name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func TestServicesBecomeVariables(t *testing.T) {
	got := FromServices([]*v1.Service{
		service("my-db", "10.0.0.5", v1.ServicePort{Name: "sql-in", Port: 5432, Protocol: v1.ProtocolTCP}, v1.ServicePort{Port: 53, Protocol: v1.ProtocolUDP}),
		service("headless", "None", v1.ServicePort{Port: 1}), service("external", "", v1.ServicePort{Port: 1}),
		service("six", "fd00::1", v1.ServicePort{Port: 80}),
	})
	want := map[string]string{
		"MY_DB_SERVICE_HOST": "10.0.0.5", "MY_DB_SERVICE_PORT": "5432", "MY_DB_SERVICE_PORT_SQL_IN": "5432",
		"MY_DB_PORT": "tcp://10.0.0.5:5432", "MY_DB_PORT_5432_TCP": "tcp://10.0.0.5:5432", "MY_DB_PORT_5432_TCP_PROTO": "tcp",
		"MY_DB_PORT_5432_TCP_PORT": "5432", "MY_DB_PORT_5432_TCP_ADDR": "10.0.0.5",
		"MY_DB_PORT_53_UDP": "udp://10.0.0.5:53", "MY_DB_PORT_53_UDP_PROTO": "udp", "MY_DB_PORT_53_UDP_PORT": "53", "MY_DB_PORT_53_UDP_ADDR": "10.0.0.5",
		"SIX_SERVICE_HOST": "fd00::1", "SIX_SERVICE_PORT": "80", "SIX_PORT": "tcp://[fd00::1]:80", "SIX_PORT_80_TCP": "tcp://[fd00::1]:80",
		"SIX_PORT_80_TCP_PROTO": "tcp", "SIX_PORT_80_TCP_PORT": "80", "SIX_PORT_80_TCP_ADDR": "fd00::1",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func input(c *v1.Container) Input {
	missing := func(kind, name string) error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	}
	return Input{
		Pod:       &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}},
		Container: c,
		Node:      downward.Node{PodIPs: []string{"10.1.1.1"}},
		Services:  map[string]string{"DB_SERVICE_HOST": "10.0.0.5", "OVER": "service"},
		ConfigMap: func(name string) (*v1.ConfigMap, error) {
			if name != "cm" {
				return nil, missing("configmap", name)
			}
			return &v1.ConfigMap{Data: map[string]string{"k": "from map", "data-1": "x", "bad=name": "y"}}, nil
		},
		Secret: func(name string) (*v1.Secret, error) {
			if name != "s" {
				return nil, missing("secret", name)
			}
			return &v1.Secret{Data: map[string][]byte{"k": []byte("from secret")}}, nil
		},
		File: func(volume, path string) (string, bool, error) {
			if path != "file.env" {
				return "", false, nil
			}
			return "F='from " + volume + "'\n", true, nil
		},
	}
}

func local(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func TestAnEnvironmentIsBuiltInOrder(t *testing.T) {
	c := &v1.Container{
		Name: "c",
		EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: local("cm")}},
			{Prefix: "S_", SecretRef: &v1.SecretEnvSource{LocalObjectReference: local("s")}},
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: local("no"), Optional: ptr.To(true)}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: local("no"), Optional: ptr.To(true)}},
		},
		Env: []v1.EnvVar{
			{Name: "FIRST", Value: "1 $(LATER) $(S_k) $(DB_SERVICE_HOST)"},
			{Name: "LATER", Value: "$(FIRST)!"},
			{Name: "OVER", Value: "mine"}, {Name: "k", Value: "over the map"}, {Name: "EMPTY"},
			{Name: "IP", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "CPU", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			{Name: "CM", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: local("cm"), Key: "k"}}},
			{Name: "S", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: local("s"), Key: "k"}}},
			{Name: "F", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "file.env", Key: "F"}}},
			{Name: "O1", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: local("no"), Key: "k", Optional: ptr.To(true)}}},
			{Name: "O2", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: local("s"), Key: "no", Optional: ptr.To(true)}}},
			{Name: "O3", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "no", Key: "F", Optional: ptr.To(true)}}},
		},
		Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}},
	}
	got, err := Build(input(c))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"data-1": "x", "S_k": "from secret", "FIRST": "1 $(LATER) from secret 10.0.0.5",
		"LATER": "1 $(LATER) from secret 10.0.0.5!", "OVER": "mine", "k": "over the map", "EMPTY": "",
		"IP": "10.1.1.1", "CPU": "1", "CM": "from map", "S": "from secret", "F": "from v", "DB_SERVICE_HOST": "10.0.0.5",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	for want, from := range map[string]*v1.EnvVarSource{
		`configmap "no" not found`:               {ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: local("no"), Key: "k"}},
		`secret "no" not found`:                  {SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: local("no"), Key: "k"}},
		"couldn't find key x in ConfigMap ns/cm": {ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: local("cm"), Key: "x"}},
		"couldn't find key x in Secret ns/s":     {SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: local("s"), Key: "x"}},
		`file "no" of volume "v" does not exist`: {FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "no", Key: "F"}},
		`key "X" not found in file "file.env"`:   {FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "file.env", Key: "X"}},
		"unsupported fieldPath: nonsense":        {FieldRef: &v1.ObjectFieldSelector{FieldPath: "nonsense"}},
	} {
		_, err := Build(input(&v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: from}}}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %q", err, want)
		}
	}
	_, err := Build(input(&v1.Container{EnvFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: local("no")}}}}))
	if !apierrors.IsNotFound(err) {
		t.Errorf("err = %v, want not found", err)
	}
}

func TestEnvironmentFiles(t *testing.T) {
	const file = "# comment\n \t\nA='1'\n  B='two words' # tail\nD='over\n two # lines'\r\nA='last'\nE=''\nS= 'v'\nnot finished"
	for key, want := range map[string]string{"A": "1", "B": "two words", "D": "over\n two # lines", "E": "", "S": ""} {
		if got, found, err := ParseFile(file, key); err != nil || !found || got != want {
			t.Errorf("%s is %q, %v, %v; want %q", key, got, found, err, want)
		}
	}
	if got, found, err := ParseFile("A='1'\n", "a"); err != nil || found {
		t.Errorf("a name that is not there is %q, %v, %v", got, found, err)
	}
	for _, bad := range []string{"novalue", "='x'", "A='open", "A='x'y", "A=plain", "A=", "A ='x'"} {
		for _, file := range []string{bad, bad + "\nA='1'\n"} {
			if got, found, err := ParseFile(file, "A"); err == nil {
				t.Errorf("%q gives %q, %v, want an error", file, got, found)
			}
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add("A='1'\nB= 2\n", "B")
	f.Add("A='x\ny'\n#c\n", "A")
	f.Fuzz(func(t *testing.T, text, key string) {
		value, found, err := ParseFile(text, key)
		if (err != nil || !found) && value != "" || err != nil && found {
			t.Errorf("%q gives %q, %v and the error %v", text, value, found, err)
		}
		if found && (!strings.Contains(text, key+"=") || strings.Contains(value, "'")) {
			t.Errorf("%q gives %q for %q", text, value, key)
		}
	})
}
