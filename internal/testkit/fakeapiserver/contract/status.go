package contract

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// transition is what a status becomes, and the field that is refused in it; empty when
// it is taken.
type transition struct {
	name, before, after, refused string
	change                       func(*corev1.PodSpec) // may be nil
}

// statusCases tell which statuses of a pod are refused for good, and which field of them
// the answer names.
var statusCases = []Case{
	{"a container that has ended for good may not go on in the status", func(k *kit) {
		const again = "may not be transitioned to non-terminated state"
		ended := func(list string, code int) string {
			return fmt.Sprintf(`{"status":{"%s":[{"name":"c","state":{"terminated":{"exitCode":%d}}}]}}`, list, code)
		}
		goes := func(list string) string {
			return fmt.Sprintf(`{"status":{"%s":[{"name":"c","state":{"running":{}}}]}}`, list)
		}
		const regular, initial, ephemeral = "containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"
		pod := func(p corev1.RestartPolicy) func(*corev1.PodSpec) {
			return func(s *corev1.PodSpec) { s.RestartPolicy = p }
		}
		own := func(p corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) func(*corev1.PodSpec) {
			return func(s *corev1.PodSpec) { s.Containers[0].RestartPolicy, s.Containers[0].RestartPolicyRules = &p, rules }
		}
		withInit := func(pod corev1.RestartPolicy, p *corev1.ContainerRestartPolicy) func(*corev1.PodSpec) {
			return func(s *corev1.PodSpec) {
				s.RestartPolicy = pod
				s.InitContainers = []corev1.Container{{Name: "c", Image: "app", RestartPolicy: p}}
				s.Containers[0].Name = "main"
			}
		}
		on := func(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
			return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
		}
		always := corev1.ContainerRestartPolicyAlways
		refused := func(list string) string { return "status." + list + "[0].state: " + again }
		for i, tc := range []transition{
			{"always", ended(regular, 0), goes(regular), "", pod(corev1.RestartPolicyAlways)},
			{"never", ended(regular, 1), goes(regular), refused(regular), pod(corev1.RestartPolicyNever)},
			{"never, waiting", ended(regular, 1), `{"status":{"containerStatuses":[{"name":"c","state":{"waiting":{}}}]}}`, refused(regular), nil},
			{"never, no state", ended(regular, 1), `{"status":{"containerStatuses":[{"name":"c"}]}}`, refused(regular), nil},
			{"never, gone from the list", ended(regular, 1), `{"status":{"containerStatuses":[]}}`, "", nil},
			{"never, another end", ended(regular, 1), ended(regular, 0), "", nil},
			{"never, another container", ended(regular, 1), `{"status":{"containerStatuses":[{"name":"d","state":{"running":{}}},{"name":"c","state":{"running":{}}}]}}`, refused(regular), nil},
			{"never, not in the spec", `{"status":{"containerStatuses":[{"name":"x","state":{"terminated":{"exitCode":1}}}]}}`, `{"status":{"containerStatuses":[{"name":"x","state":{"running":{}}}]}}`, refused(regular), pod(corev1.RestartPolicyAlways)},
			{"on failure, failed", ended(regular, 1), goes(regular), "", pod(corev1.RestartPolicyOnFailure)},
			{"on failure, done", ended(regular, 0), goes(regular), refused(regular), pod(corev1.RestartPolicyOnFailure)},
			{"own always", ended(regular, 0), goes(regular), "", own(always)},
			{"own never", ended(regular, 1), goes(regular), refused(regular), own(corev1.ContainerRestartPolicyNever)},
			{"own rule that holds", ended(regular, 42), goes(regular), "", own(corev1.ContainerRestartPolicyNever, on(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 42))},
			{"own rule that does not hold", ended(regular, 43), goes(regular), refused(regular), own(corev1.ContainerRestartPolicyNever, on(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpIn, 42))},
			{"own rule of other codes", ended(regular, 43), goes(regular), "", own(corev1.ContainerRestartPolicyNever, on(corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleOnExitCodesOpNotIn, 42))},
			{"a rule for all containers", ended(regular, 7), goes(regular), "", own(corev1.ContainerRestartPolicyNever, on(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 42))},
			{"init, never", ended(initial, 0), goes(initial), refused(initial), withInit(corev1.RestartPolicyNever, nil)},
			{"init, on failure, failed", ended(initial, 1), goes(initial), "", withInit(corev1.RestartPolicyOnFailure, nil)},
			{"init, on failure, done", ended(initial, 0), goes(initial), refused(initial), withInit(corev1.RestartPolicyOnFailure, nil)},
			{"init, always", ended(initial, 0), goes(initial), "", withInit(corev1.RestartPolicyAlways, nil)},
			{"sidecar, never", ended(initial, 0), goes(initial), "", withInit(corev1.RestartPolicyNever, &always)},
			{"ephemeral", ended(ephemeral, 0), goes(ephemeral), refused(ephemeral), pod(corev1.RestartPolicyAlways)},
		} {
			k.transition(fmt.Sprintf("ended-%d", i), tc)
		}
	}},
	{"a status that is not valid is refused by its field", func(k *kit) {
		const uid = "must be between 0 and 2147483647, inclusive"
		for i, tc := range []transition{
			{"class", "", `{"status":{"qosClass":"Guaranteed"}}`, "status.qosClass: field is immutable", nil},
			{"generation", "", `{"status":{"observedGeneration":-1}}`, "status.observedGeneration: must be a non-negative integer", nil},
			{"generation that was taken back", `{"status":{"observedGeneration":3}}`, `{"status":{"observedGeneration":2}}`, "", nil},
			{"generation of a condition", "", `{"status":{"conditions":[{"type":"Ready","status":"True","observedGeneration":-1}]}}`, "status.conditions[0].observedGeneration: must be a non-negative integer", nil},
			{"type of a condition", "", `{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"a b","status":"True"}]}}`, "status.conditions[1].Type: name part must consist of alphanumeric characters", nil},
			{"type of a condition with a domain", "", `{"status":{"conditions":[{"type":"example.com/a","status":"True"}]}}`, "", nil},
			{"nominated node", "", `{"status":{"nominatedNodeName":"n2"}}`, "status.nominatedNodeName: may not be set on pods that are already bound to a node", nil},
			{"claim", "", `{"status":{"resourceClaimStatuses":[{"name":"x"}]}}`, "status.resourceClaimStatuses[0].name: must match the name of an entry", nil},
			{"both families", "", `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}],"hostIP":"10.0.0.2","hostIPs":[{"ip":"10.0.0.2"},{"ip":"fd00::2"}]}}`, "", nil},
			{"two of a family", "", `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]}}`, "status.podIPs: may specify no more than one IP for each IP family", nil},
			{"no address", "", `{"status":{"podIP":"x","podIPs":[{"ip":"x"}]}}`, "status.podIPs[0]: must be a valid IP address", nil},
			{"address with zeros", "", `{"status":{"podIP":"010.0.0.1","podIPs":[{"ip":"010.0.0.1"}]}}`, "status.podIPs[0]: must not have leading 0s", nil},
			{"host's first address", "", `{"status":{"hostIP":"10.0.0.2","hostIPs":[{"ip":"10.0.0.3"}]}}`, "status.hostIPs[0].ip: must be equal to `hostIP`", nil},
			{"no address of the host", "", `{"status":{"hostIP":"x","hostIPs":[{"ip":"x"}]}}`, "status.hostIPs[0]: must be a valid IP address", nil},
			{"two of a family of the host", "", `{"status":{"hostIP":"10.0.0.1","hostIPs":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]}}`, "status.hostIPs: may specify no more than one IP for each IP family", nil},
			{"user", "", `{"status":{"containerStatuses":[{"name":"c","user":{"linux":{"uid":-1,"gid":0}}}]}}`, "status.containerStatuses[0].user.linux.uid: " + uid, nil},
			{"group", "", `{"status":{"initContainerStatuses":[{"name":"c","user":{"linux":{"uid":0,"gid":-1}}}]}}`, "status.initContainerStatuses[0].user.linux.gid: " + uid, nil},
			{"further group", "", `{"status":{"ephemeralContainerStatuses":[{"name":"c","user":{"linux":{"uid":0,"gid":0,"supplementalGroups":[1,-1]}}}]}}`, "status.ephemeralContainerStatuses[0].user.linux.supplementalGroups[1]: " + uid, nil},
			{"device that was not asked for", "", `{"status":{"containerStatuses":[{"name":"c","allocatedResourcesStatus":[{"name":"example.com/gpu"}]}]}}`, "status.containerStatuses[0].allocatedResourcesStatus[0].name: must match one of the container's resource requests", nil},
			{"device of a debug container", "", `{"status":{"ephemeralContainerStatuses":[{"name":"c","allocatedResourcesStatus":[{"name":"example.com/gpu"}]}]}}`, "status.ephemeralContainerStatuses[0].allocatedResourcesStatus: must not be specified in container status", nil},
		} {
			k.transition(fmt.Sprintf("invalid-%d", i), tc)
		}
	}},
	{"of two addresses that differ the single one counts", func(k *kit) {
		k.pod("addresses", "n1")
		got, err := k.patchStatus("addresses", `{"status":{"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.2"}]}}`)
		k.works("patch", err)
		k.equal("addresses", fmt.Sprint(got.Status.PodIP, got.Status.PodIPs), fmt.Sprint("10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}))
	}},
}

// transition plays one on a pod of its own.
func (k *kit) transition(pod string, tc transition) {
	k.t.Helper()
	k.podOf(pod, tc.change)
	if tc.before != "" {
		_, err := k.patchStatus(pod, tc.before)
		k.works(tc.name+": before", err)
	}
	_, err := k.patchStatus(pod, tc.after)
	if tc.refused == "" {
		k.works(tc.name, err)
		return
	}
	k.is(tc.name, err, apierrors.IsInvalid)
	if causes := causesOf(err); !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool { return named(c, tc.refused) }) {
		k.t.Errorf("%s: refused for %v, want %s", tc.name, causes, tc.refused)
	}
}
