package admit

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/plan"
)

func pod(uid string, edit ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)}, Spec: v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c"}}}}
	for _, e := range edit {
		e(p)
	}
	return p
}

func cpu(q string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(q), "example.com/gpu": resource.MustParse("1")}
	}
}

func port(n int32, ip string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: n, HostPort: n, HostIP: ip}}
	}
}

func sysctl(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: name, Value: "1"}}}
	}
}

func node(edit ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "a"}}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourcePods: resource.MustParse("3")}
	for _, e := range edit {
		e(n)
	}
	return n
}

func TestCheck(t *testing.T) {
	tainted := node(func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}, {Key: "s", Effect: v1.TaintEffectNoSchedule}}
	})
	tolerating := pod("p", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}} })
	windows := pod("p", func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} })
	for _, tc := range []struct {
		name    string
		in      Input
		want    plan.Decision
		reason  string
		message string
	}{
		{"a plain pod runs", Input{Pod: pod("p"), Node: node()}, plan.Admitted, "", ""},
		{"a pod waits for the node's object", Input{Pod: pod("p")}, plan.AdmissionPending, "InvalidNodeInfo", "waits for it"},
		{"but not for ever", Input{Pod: pod("p"), Waited: time.Minute, NodeDeadline: time.Minute}, plan.Rejected, "InvalidNodeInfo", "1m0s"},
		{"a static pod does not wait", Input{Pod: pod("p"), Static: true}, plan.Admitted, "", ""},
		{"nor does a pod without an apiserver", Input{Pod: pod("p"), Standalone: true}, plan.Admitted, "", ""},
		{"another node's pod", Input{Pod: pod("p", func(p *v1.Pod) { p.Spec.NodeName = "other" }), Node: node()}, plan.Rejected, "NodeName", `"other"`},
		{"a selector that does not match", Input{Pod: pod("p", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }), Node: node()}, plan.Rejected, "NodeAffinity", "didn't match"},
		{"another operating system's label", Input{Pod: pod("p", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelOSStable: "windows"} }), Node: node()}, plan.Rejected, "PodOSSelectorNodeLabelDoesNotMatch", ""},
		{"another operating system", Input{Pod: windows, Node: node()}, plan.Rejected, "PodOSNotSupported", "windows"},
		{"an evicting taint", Input{Pod: pod("p"), Node: tainted}, plan.Rejected, "TaintToleration", "{k: v}"},
		{"a tolerated taint", Input{Pod: tolerating, Node: tainted}, plan.Admitted, "", ""},
		{"static pods ignore taints", Input{Pod: pod("p"), Static: true, Node: tainted}, plan.Admitted, "", ""},
		{"cpu that is left", Input{Pod: pod("p", cpu("1")), Node: node(), Active: []*v1.Pod{pod("a", cpu("1"))}}, plan.Admitted, "", ""},
		{"cpu that is not left", Input{Pod: pod("p", cpu("1")), Node: node(), Active: []*v1.Pod{pod("a", cpu("1001m"))}}, plan.Rejected, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 1001, capacity: 2000"},
		{"the pod itself does not count", Input{Pod: pod("p", cpu("2")), Node: node(), Active: []*v1.Pod{pod("p", cpu("2"))}}, plan.Admitted, "", ""},
		{"the node's own account wins", Input{Pod: pod("p", cpu("1")), Node: node(), Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}}, plan.Rejected, "OutOfcpu", ""},
		{"one pod too many", Input{Pod: pod("p"), Node: node(), Active: []*v1.Pod{pod("a"), pod("b"), pod("c")}}, plan.Rejected, "OutOfpods", "requested: 1, used: 3, capacity: 3"},
		{"a host port that is taken", Input{Pod: pod("p", port(80, "")), Node: node(), Active: []*v1.Pod{pod("a", port(80, "10.0.0.1"))}}, plan.Rejected, "NodePorts", "default/a"},
		{"the same port of another address", Input{Pod: pod("p", port(80, "10.0.0.2")), Node: node(), Active: []*v1.Pod{pod("a", port(80, "10.0.0.1"))}}, plan.Admitted, "", ""},
		{"a safe sysctl", Input{Pod: pod("p", sysctl("net.ipv4.tcp_syncookies")), Node: node()}, plan.Admitted, "", ""},
		{"an unsafe sysctl", Input{Pod: pod("p", sysctl("kernel.msgmax")), Node: node()}, plan.Rejected, "SysctlForbidden", "kernel.msgmax"},
		{"an unsafe sysctl that is allowed", Input{Pod: pod("p", sysctl("kernel/msgmax")), Node: node(), AllowedUnsafeSysctls: []string{"kernel.msg*"}}, plan.Admitted, "", ""},
		{"a network sysctl of the host's network", Input{Pod: pod("p", sysctl("net.ipv4.tcp_syncookies"), func(p *v1.Pod) { p.Spec.HostNetwork = true }), Node: node()}, plan.Rejected, "SysctlForbidden", "host net"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Check(tc.in)
			if got.Decision != tc.want || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) {
				t.Fatalf("got %+v, want %d %q …%q…", got, tc.want, tc.reason, tc.message)
			}
			if got.Decision == plan.Rejected && got.Message == "" {
				t.Fatal("rejected without a word")
			}
		})
	}
}

func TestCriticalPods(t *testing.T) {
	high := int32(2_000_000_000)
	for name, tc := range map[string]struct {
		pod    *v1.Pod
		static bool
		want   bool
	}{
		"plain":         {pod("p"), false, false},
		"static":        {pod("p"), true, true},
		"mirror":        {pod("p", func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} }), false, true},
		"high priority": {pod("p", func(p *v1.Pod) { p.Spec.Priority = &high }), false, true},
	} {
		if got := IsCritical(tc.pod, tc.static); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
