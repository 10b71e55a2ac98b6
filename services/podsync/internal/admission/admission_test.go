package admission

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
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
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1000"), v1.ResourcePods: resource.MustParse("3")}
	for _, e := range edit {
		e(n)
	}
	return n
}

func edit(e func(*v1.Pod)) func(*v1.Pod) { return e }

func guaranteed(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1")}
}

func profile(typ v1.AppArmorProfileType, name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: typ}}
		if name != "" {
			p.Spec.SecurityContext.AppArmorProfile.LocalhostProfile = &name
		}
	}
}

func asks(name, q string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceName(name): resource.MustParse(q)}
	}
}

func pressed(types ...v1.NodeConditionType) func(*v1.Node) {
	return func(n *v1.Node) {
		for _, t := range types {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: t, Status: v1.ConditionTrue})
		}
	}
}

func gpus(capacity, allocatable string) func(*v1.Node) {
	return func(n *v1.Node) {
		n.Status.Capacity = v1.ResourceList{"example.com/gpu": resource.MustParse(capacity)}
		n.Status.Allocatable["example.com/gpu"] = resource.MustParse(allocatable)
	}
}

func TestCheck(t *testing.T) {
	tainted := node(func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}, {Key: "s", Effect: v1.TaintEffectNoSchedule}}
	})
	tolerating := pod("p", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}} })
	windows := pod("p", func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} })
	important := func(p *v1.Pod) { n := int32(2_000_000_000); p.Spec.Priority = &n }
	calm := func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}}
	}
	strict := edit(func(p *v1.Pod) {
		policy := v1.SupplementalGroupsPolicyStrict
		p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &policy}
	})
	elsewhere := edit(func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} })
	restartAll := edit(func(p *v1.Pod) {
		never := v1.ContainerRestartPolicyNever
		p.Spec.Containers[0].RestartPolicy = &never
		p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	})
	whole := edit(func(p *v1.Pod) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}
	})
	sidecarPort := edit(func(p *v1.Pod) {
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: &always, Ports: []v1.ContainerPort{{HostPort: 80}}}}
	})
	const onlyNodes = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
	gone := []v1.ResourceName{"example.com/gpu"}
	limited := func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
	}
	claimsGPU := func(p *v1.Pod) {
		p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: p.Spec.Containers[0].Name, ResourceName: "example.com/gpu", RequestName: "r"},
		}}
	}
	const noGPU = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/gpu, which is unexpected"
	for _, tc := range []struct {
		name    string
		in      Input
		want    podstate.Decision
		reason  string
		message string
	}{
		{"a plain pod runs", Input{Pod: pod("p"), Node: node()}, podstate.Admitted, "", ""},

		// 1 eviction
		{"memory is short", Input{Pod: pod("p"), Waited: unsaid, Node: node(pressed(v1.NodeMemoryPressure))}, podstate.Rejected, "Evicted", "The node had condition: [MemoryPressure]. "},
		{"memory is short, the pod has asked for some", Input{Pod: pod("p", cpu("1")), Node: node(pressed(v1.NodeMemoryPressure))}, podstate.Admitted, "", ""},
		{"memory is short, the pod tolerates it", Input{Pod: pod("p", calm), Node: node(pressed(v1.NodeMemoryPressure))}, podstate.Admitted, "", ""},
		{"memory is short, the pod is critical", Input{Pod: pod("p", important), Node: node(pressed(v1.NodeMemoryPressure))}, podstate.Admitted, "", ""},
		{"the disk is full", Input{Pod: pod("p", guaranteed, calm), Waited: unsaid, Node: node(pressed(v1.NodeDiskPressure))}, podstate.Rejected, "Evicted", "The node had condition: [DiskPressure]. "},
		{"memory and processes are short", Input{Pod: pod("p", calm), Waited: unsaid, Node: node(pressed(v1.NodeMemoryPressure, v1.NodePIDPressure))}, podstate.Rejected, "Evicted", "The node had condition: [MemoryPressure PIDPressure]. "},
		{"the disk is full, the pod is static", Input{Pod: pod("p"), Static: true, Node: node(pressed(v1.NodeDiskPressure))}, podstate.Admitted, "", ""},

		// 2 sysctls
		{"a safe sysctl", Input{Pod: pod("p", sysctl("net.ipv4.tcp_syncookies")), Node: node()}, podstate.Admitted, "", ""},
		{"an unsafe sysctl", Input{Pod: pod("p", sysctl("kernel.msgmax")), Node: node()}, podstate.Rejected, "SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{"an unsafe sysctl in the other spelling", Input{Pod: pod("p", sysctl("kernel/msgmax")), Node: node()}, podstate.Rejected, "SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{"an unsafe sysctl that is allowed", Input{Pod: pod("p", sysctl("kernel/msgmax")), Node: node(), Host: Host{AllowedUnsafeSysctls: []string{"kernel.msg*"}}}, podstate.Admitted, "", ""},
		{"a network sysctl of the host's network", Input{Pod: pod("p", sysctl("net.ipv4.tcp_syncookies"), func(p *v1.Pod) { p.Spec.HostNetwork = true }), Node: node()}, podstate.Rejected, "SysctlForbidden", `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`},
		{"an IPC sysctl of the host's IPC", Input{Pod: pod("p", sysctl("kernel.shm_rmid_forced"), func(p *v1.Pod) { p.Spec.HostIPC = true }), Node: node()}, podstate.Rejected, "SysctlForbidden", `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled`},
		{"sysctls are judged while the node is not known", Input{Pod: pod("p", sysctl("kernel.msgmax"))}, podstate.Rejected, "SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`},

		// 3 devices
		{"a device whose plugin is away", Input{Pod: pod("p", asks("example.com/gpu", "1")), Node: node(gpus("2", "0"))}, podstate.AdmissionPending, "UnexpectedAdmissionError", "no device of example.com/gpu is healthy now, of 2 that this node has; the pod waits for their plugin"},
		{"a device whose plugin does not come back", Input{Pod: pod("p", asks("example.com/gpu", "1")), Node: node(gpus("2", "0")), Waited: time.Minute, Deadline: time.Minute}, podstate.Rejected, "UnexpectedAdmissionError", noGPU},
		{"a device that is there", Input{Pod: pod("p", asks("example.com/gpu", "1")), Node: node(gpus("2", "2"))}, podstate.Admitted, "", ""},
		{"a device that this node never had", Input{Pod: pod("p", asks("example.com/gpu", "1")), Node: node()}, podstate.Admitted, "", ""},
		{"a device whose plugin nobody serves", Input{Pod: pod("p", limited), Node: node(gpus("2", "2")), GoneDevices: gone}, podstate.Rejected, "UnexpectedAdmissionError", noGPU},
		{"a static pod's device whose plugin nobody serves", Input{Pod: pod("p", limited), Static: true, GoneDevices: gone}, podstate.Rejected, "UnexpectedAdmissionError", noGPU},
		{"a device of a plugin that nobody serves, of which there is a claim", Input{Pod: pod("p", limited, claimsGPU), Node: node(gpus("2", "2")), GoneDevices: gone}, podstate.Admitted, "", ""},
		{"no devices of a plugin that nobody serves", Input{Pod: pod("p", cpu("1")), Node: node(), GoneDevices: gone}, podstate.Admitted, "", ""},
		{"a pod that has such a device and is to have other resources", Input{Pod: pod("p", limited), Node: node(gpus("0", "0")), GoneDevices: gone, Resize: true}, podstate.Admitted, "", ""},

		// 4 predicates
		{"a pod waits for the node's object", Input{Pod: pod("p")}, podstate.AdmissionPending, "InvalidNodeInfo", "this node's object has not been read from the apiserver yet; the pod waits for it"},
		{"but not for ever", Input{Pod: pod("p"), Waited: time.Minute, Deadline: time.Minute}, podstate.Rejected, "InvalidNodeInfo", "Kubelet cannot get node info: this node's object could not be read from the apiserver for 1m0s"},
		{"a static pod does not wait", Input{Pod: pod("p"), Static: true}, podstate.Admitted, "", ""},
		{"nor does a pod without an apiserver", Input{Pod: pod("p"), Standalone: true}, podstate.Admitted, "", ""},
		{"a selector of another operating system", Input{Pod: pod("p", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelOSStable: "windows"} }), Node: node()}, podstate.Rejected, "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{"such a selector without an apiserver", Input{Pod: pod("p", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelOSStable: "windows"} }), Standalone: true}, podstate.Rejected, "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{"another operating system's label", Input{Pod: pod("p", func(p *v1.Pod) { p.Labels = map[string]string{v1.LabelOSStable: "windows"} }), Node: node()}, podstate.Rejected, "PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"},
		{"another operating system", Input{Pod: windows, Node: node()}, podstate.Rejected, "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"},
		{"strict groups that the runtime cannot do", Input{Pod: pod("p", strict), Node: node(), Host: Host{NoSupplementalGroupsPolicy: true}}, podstate.Rejected, "SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"},
		{"strict groups that it can", Input{Pod: pod("p", strict), Node: node()}, podstate.Admitted, "", ""},
		{"cpu that is left", Input{Pod: pod("p", cpu("1")), Node: node(), Active: []*v1.Pod{pod("a", cpu("1"))}}, podstate.Admitted, "", ""},
		{"cpu that is not left", Input{Pod: pod("p", cpu("1")), Node: node(), Active: []*v1.Pod{pod("a", cpu("1001m"))}}, podstate.Rejected, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 1001, capacity: 2000"},
		{"memory that is not left", Input{Pod: pod("p", asks("memory", "600")), Node: node(), Active: []*v1.Pod{pod("a", asks("memory", "500"))}}, podstate.Rejected, "OutOfmemory", "Node didn't have enough resource: memory, requested: 600, used: 500, capacity: 1000"},
		{"disk that is not left", Input{Pod: pod("p", asks("ephemeral-storage", "1")), Node: node()}, podstate.Rejected, "OutOfephemeral-storage", "Node didn't have enough resource: ephemeral-storage, requested: 1, used: 0, capacity: 0"},
		{"huge pages that the node does not have", Input{Pod: pod("p", asks("hugepages-2Mi", "2Mi")), Node: node()}, podstate.Rejected, "OutOfhugepages-2Mi", "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0"},
		{"devices that are not left", Input{Pod: pod("p", asks("example.com/gpu", "2")), Node: node(gpus("2", "2")), Active: []*v1.Pod{pod("a", asks("example.com/gpu", "1"))}}, podstate.Rejected, "OutOfexample.com/gpu", "Node didn't have enough resource: example.com/gpu, requested: 2, used: 1, capacity: 2"},
		{"one pod too many", Input{Pod: pod("p", cpu("9")), Node: node(), Active: []*v1.Pod{pod("a"), pod("b"), pod("c")}}, podstate.Rejected, "OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"},
		{"the pod itself does not count", Input{Pod: pod("p", cpu("2")), Node: node(), Active: []*v1.Pod{pod("p", cpu("2"))}}, podstate.Admitted, "", ""},
		{"the room of a pod whose object is gone is waited for", Input{Pod: pod("p", cpu("2")), Node: node(), Active: []*v1.Pod{pod("a", cpu("2"))}, Gone: map[types.UID]bool{"a": true}}, podstate.AdmissionPending, "OutOfcpu", "the pod waits for what is left of pods that were deleted by force: Node didn't have enough resource: cpu, requested: 2000, used: 2000, capacity: 2000"},
		{"but not for ever", Input{Pod: pod("p", cpu("2")), Node: node(), Active: []*v1.Pod{pod("a", cpu("2"))}, Gone: map[types.UID]bool{"a": true}, Waited: time.Minute, Deadline: time.Minute}, podstate.Admitted, "", ""},
		{"nor where it is not enough", Input{Pod: pod("p", cpu("2")), Node: node(), Active: []*v1.Pod{pod("a", cpu("1")), pod("b", cpu("1"))}, Gone: map[types.UID]bool{"a": true}}, podstate.Rejected, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 2000, capacity: 2000"},
		{"a host port of a pod whose object is gone is waited for", Input{Pod: pod("p", port(80, "")), Node: node(), Active: []*v1.Pod{pod("a", port(80, ""))}, Gone: map[types.UID]bool{"a": true}}, podstate.AdmissionPending, "NodePorts", "the pod waits for what is left of pods that were deleted by force: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{"a pod that is leaving still counts for an ordinary one", Input{Pod: pod("p", cpu("2")), Node: node(), Active: []*v1.Pod{pod("a", cpu("2"))}, Leaving: map[types.UID]time.Duration{"a": 0}}, podstate.Rejected, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 2000, capacity: 2000"},
		{"the node's own account wins", Input{Pod: pod("p", cpu("1")), Node: node(), Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}}, podstate.Rejected, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 0, capacity: 500"},
		{"resources are told before the rest", Input{Pod: pod("p", cpu("3"), elsewhere), Node: node()}, podstate.Rejected, "OutOfcpu", "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000"},
		{"a selector that does not match", Input{Pod: pod("p", elsewhere), Node: node()}, podstate.Rejected, "NodeAffinity", onlyNodes},
		{"nor in what may be outdated", Input{Pod: pod("p", elsewhere), Node: node(), NodeOutdated: true}, podstate.AdmissionPending, "NodeAffinity", "this node's labels do not match the pod's node affinity or selector; they are read anew before it is rejected"},
		{"nor when that cannot be read anew", Input{Pod: pod("p", elsewhere), Node: node(), NodeOutdated: true, Waited: time.Hour, Deadline: time.Minute}, podstate.Rejected, "NodeAffinity", onlyNodes},
		{"another node's pod", Input{Pod: pod("p", func(p *v1.Pod) { p.Spec.NodeName = "other" }), Node: node()}, podstate.Rejected, "NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"},
		{"a host port that is taken", Input{Pod: pod("p", port(80, "")), Node: node(), Active: []*v1.Pod{pod("a", port(80, "10.0.0.1"))}}, podstate.Rejected, "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{"a host port that a sidecar has", Input{Pod: pod("p", port(80, "")), Node: node(), Active: []*v1.Pod{pod("a", sidecarPort)}}, podstate.Rejected, "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		{"the same port of another address", Input{Pod: pod("p", port(80, "10.0.0.2")), Node: node(), Active: []*v1.Pod{pod("a", port(80, "10.0.0.1"))}}, podstate.Admitted, "", ""},
		{"an evicting taint", Input{Pod: pod("p"), Node: tainted}, podstate.Rejected, "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"},
		{"a tolerated taint", Input{Pod: tolerating, Node: tainted}, podstate.Admitted, "", ""},
		{"static pods ignore taints", Input{Pod: pod("p"), Static: true, Node: tainted}, podstate.Admitted, "", ""},

		// 5 AppArmor
		{"a profile that nobody enforces", Input{Pod: pod("p", profile("RuntimeDefault", "")), Node: node(), Host: Host{NoAppArmor: true}}, podstate.Rejected, "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		{"no profile needs nobody", Input{Pod: pod("p", profile("Unconfined", "")), Node: node(), Host: Host{NoAppArmor: true}}, podstate.Admitted, "", ""},
		{"a profile that is not loaded yet, which the runtime says", Input{Pod: pod("p", profile("Localhost", "x")), Node: node()}, podstate.Admitted, "", ""},
		{"the profile of a container for debugging", Input{Pod: pod("p", func(p *v1.Pod) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "d", SecurityContext: &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}}}}
		}), Node: node(), Host: Host{NoAppArmor: true}}, podstate.Rejected, "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		{"a profile without a name", Input{Pod: pod("p", profile("Localhost", " ")), Node: node()}, podstate.Rejected, "AppArmor", `Cannot enforce AppArmor: invalid empty AppArmor profile name: "&AppArmorProfile{Type:Localhost,LocalhostProfile:* ,}"`},
		{"a container's profile in the old spelling", Input{Pod: pod("p", func(p *v1.Pod) { p.Annotations = map[string]string{appArmorAnnotation + "c": "localhost/x"} }), Node: node(), Host: Host{NoAppArmor: true}}, podstate.Rejected, "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"},

		// 6 pod features
		{"resources of the whole pod where the gate is off", Input{Pod: pod("p", whole), Node: node(), Host: Host{NoPodLevelResources: true}}, podstate.Rejected, "PodLevelResourcesNotSupported", "pod-level resources are not supported on this node: the feature gate PodLevelResources is off"},
		{"resources of the whole pod", Input{Pod: pod("p", whole), Node: node()}, podstate.Admitted, "", ""},

		// 7 declared features
		{"a feature that the node does not have", Input{Pod: pod("p", restartAll), Node: node(), Host: Host{Release: "v1.36.3", DeclaredFeatures: []string{}}}, podstate.Rejected, "PodFeatureUnsupported", "Pod requires node features that are not available: RestartAllContainersOnContainerExits"},
		{"a feature that it has", Input{Pod: pod("p", restartAll), Node: node(), Host: Host{Release: "v1.36.3", DeclaredFeatures: []string{"RestartAllContainersOnContainerExits"}}}, podstate.Admitted, "", ""},
		{"features where nobody asks", Input{Pod: pod("p", restartAll), Node: node()}, podstate.Admitted, "", ""},

		// 8 shutdown
		{"a node that goes down", Input{Pod: pod("p"), Node: node(), Host: Host{ShuttingDown: true}}, podstate.Rejected, "NodeShutdown", "Pod was rejected as the node is shutting down."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Check(tc.in)
			if got.Decision != tc.want || got.Reason != tc.reason || got.Message != tc.message {
				t.Fatalf("got %+v, want %d %q %q", got, tc.want, tc.reason, tc.message)
			}
		})
	}
}

func TestWhatAnUpdateNeedsAndTheNodeLacksIsNamed(t *testing.T) {
	cpu := func(milli int64) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "i", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}}}}
		}
	}
	const resizing = "InPlacePodVerticalScalingInitContainers"
	for _, tc := range []struct {
		name     string
		declared []string
		release  string
		old, now *v1.Pod
		want     string
		wantErr  bool
	}{
		{"an init container's resize", []string{}, "v1.36.3", pod("p", cpu(1)), pod("p", cpu(2)), resizing, false},
		{"where the node declares it", []string{resizing}, "v1.36.3", pod("p", cpu(1)), pod("p", cpu(2)), "", false},
		{"an update that needs nothing", []string{}, "v1.36.3", pod("p", cpu(1)), pod("p", cpu(1)), "", false},
		{"a node that declares nothing", nil, "v1.36.3", pod("p", cpu(1)), pod("p", cpu(2)), "", false},
		{"a release that cannot be read", []string{}, "newest", pod("p", cpu(1)), pod("p", cpu(2)), "", true},
	} {
		got, err := UnmetByUpdate(tc.declared, tc.release, tc.old, tc.now)
		if strings.Join(got, ",") != tc.want || (err != nil) != tc.wantErr {
			t.Errorf("%s: %q, %v", tc.name, got, err)
		}
	}
}
