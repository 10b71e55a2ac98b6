package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func show(l v1.ResourceList, names ...v1.ResourceName) string {
	var out []string
	for _, name := range names {
		q := l[name]
		out = append(out, q.String())
	}
	return strings.Join(out, " ")
}

func TestCapacityAndAllocatable(t *testing.T) {
	machine := &Machine{Cores: 2, MemoryBytes: 4 << 30, RootFilesystemBytes: 100 << 30}
	huge := *machine
	huge.HugePages = []HugePages{{2 << 20, 512}, {1 << 30, 1}}
	for name, test := range map[string]struct {
		cfg                   Config
		machine               *Machine
		old                   v1.ResourceList
		names                 []v1.ResourceName
		capacity, allocatable string
	}{
		"nothing reserved": {
			cfg: Config{MaxPods: 110}, machine: machine, names: []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "pods"},
			capacity: "2 4Gi 100Gi 110", allocatable: "2 4Gi 100Gi 110",
		},
		"pods per core bound the pods": {cfg: Config{MaxPods: 110, PodsPerCore: 10}, machine: machine, names: []v1.ResourceName{"pods"}, capacity: "20", allocatable: "20"},
		"reserved and hard thresholds are taken off, soft ones are not": {
			cfg: Config{
				KubeReserved: list("cpu", "100m", "memory", "512Mi"), SystemReserved: list("memory", "512Mi", "ephemeral-storage", "1Gi"),
				Thresholds: []threshold.Threshold{
					{Signal: "memory.available", Amount: threshold.Amount{Quantity: 1 << 30}, Hard: true},
					// A tenth as the kubelet reckons it: not quite 10 GiB.
					{Signal: "nodefs.available", Amount: threshold.Amount{Percent: 10}, Hard: true},
					{Signal: "memory.available", Amount: threshold.Amount{Quantity: 1 << 30}},
				},
			},
			machine: machine, names: []v1.ResourceName{"cpu", "memory", "ephemeral-storage"}, capacity: "2 4Gi 100Gi", allocatable: "1900m 2Gi 95563022176",
		},
		"local storage may be left out, and goes": {
			cfg:     Config{MaxPods: 110, NoLocalStorage: true, Thresholds: []threshold.Threshold{{Signal: "nodefs.available", Amount: threshold.Amount{Percent: 10}, Hard: true}}},
			machine: machine, old: list("ephemeral-storage", "9Gi"), names: []v1.ResourceName{"cpu", "ephemeral-storage"}, capacity: "2 0", allocatable: "2 0",
		},
		"huge pages are taken off memory": {
			machine: &huge, names: []v1.ResourceName{"memory", "hugepages-2Mi", "hugepages-1Gi"}, capacity: "4Gi 1Gi 1Gi", allocatable: "2Gi 1Gi 1Gi",
		},
		"never below zero": {cfg: Config{KubeReserved: list("cpu", "9")}, machine: machine, names: []v1.ResourceName{"cpu"}, capacity: "2", allocatable: "0"},
		"extended resources stay, huge pages of old sizes go": {
			machine: machine, old: list("example.com/gpu", "3", "hugepages-64Ki", "1Gi"), names: []v1.ResourceName{"example.com/gpu", "hugepages-64Ki"}, capacity: "3 0", allocatable: "3 0",
		},
	} {
		got := capacity(test.cfg, test.machine, test.old)
		if s := show(got, test.names...); s != test.capacity {
			t.Errorf("%s: capacity %s; want %s", name, s, test.capacity)
		}
		if s := show(allocatable(reserved(test.cfg, got), got), test.names...); s != test.allocatable {
			t.Errorf("%s: allocatable %s; want %s", name, s, test.allocatable)
		}
	}
}

// What a kubelet's device plugins had is not offered, for nobody gives it out; what
// somebody has written into the Node is, until the machine is restarted.
func TestDevicesThatNobodyServesAreNotOffered(t *testing.T) {
	for name, test := range map[string]struct {
		left   *Devices
		boot   string
		gpu    string
		dongle string
	}{
		"of a plugin that is gone":                      {&Devices{Checkpoint: true, Resources: []v1.ResourceName{"example.com/gpu"}}, "a", "0", "2"},
		"of no plugin":                                  {&Devices{}, "a", "3", "2"},
		"before that is known":                          {nil, "a", "3", "2"},
		"the machine was restarted":                     {&Devices{}, "b", "0", "0"},
		"it was restarted and a kubelet has told which": {&Devices{Checkpoint: true, Resources: []v1.ResourceName{"example.com/gpu"}}, "b", "0", "2"},
	} {
		old := &v1.Node{Status: v1.NodeStatus{
			NodeInfo: v1.NodeSystemInfo{BootID: "a"},
			Capacity: list("example.com/gpu", "3", "example.com/dongle", "2"), Allocatable: list("example.com/gpu", "3", "example.com/dongle", "2"),
		}}
		n, _ := Update(Config{}, Facts{Machine: &Machine{Cores: 1, BootID: test.boot}, Devices: test.left}, old, now)
		for what, got := range map[string]v1.ResourceList{"capacity": n.Status.Capacity, "allocatable": n.Status.Allocatable} {
			if s := show(got, "example.com/gpu", "example.com/dongle", "cpu"); s != test.gpu+" "+test.dongle+" 1" {
				t.Errorf("%s: %s %s; want %s %s 1", name, what, s, test.gpu, test.dongle)
			}
		}
	}
	fresh, _ := New(Config{}, Facts{Machine: &Machine{Cores: 1}, Devices: &Devices{Checkpoint: true, Resources: []v1.ResourceName{"example.com/gpu"}}}, now)
	if gpu, named := fresh.Status.Capacity["example.com/gpu"]; !named || !gpu.IsZero() {
		t.Errorf("a new Node has %v; want 0 of the resource named", fresh.Status.Capacity)
	}
}

func TestAfterARestartOfTheMachinePodsyncIsHeardBeforeCountedResourcesAreNone(t *testing.T) {
	for name, test := range map[string]struct {
		runtime Runtime
		dongle  string
		boot    string
	}{
		"it was not asked yet":             {Runtime{}, "2", "a"},
		"it has not answered yet":          {Runtime{Unanswered: PeerGrace - 1, Err: "away"}, "2", "a"},
		"it is away":                       {Runtime{Unanswered: PeerGrace, Err: "away"}, "0", "b"},
		"it is older and says nothing":     {Runtime{Known: true}, "0", "b"},
		"nothing is counted, and it waits": {Runtime{}, "", "b"},
	} {
		old := &v1.Node{Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: "a"}}}
		if test.dongle != "" {
			old.Status.Capacity = list("example.com/dongle", "2")
		}
		n, events := Update(Config{}, Facts{Machine: &Machine{Cores: 1, BootID: "b"}, Runtime: test.runtime}, old, now)
		rebooted := slices.ContainsFunc(events, func(e Event) bool { return e.Reason == "Rebooted" })
		got, named := n.Status.Capacity["example.com/dongle"]
		if n.Status.NodeInfo.BootID != test.boot || rebooted != (test.boot == "b") || named != (test.dongle != "") || named && got.String() != test.dongle {
			t.Errorf("%s: boot %s, told %t, %s of the resource", name, n.Status.NodeInfo.BootID, rebooted, got.String())
		}
	}
}

func TestReadyIsJudgedFromTheRuntimeAndItsAge(t *testing.T) {
	good := Runtime{Known: true, Ready: true, NetworkReady: true}
	with := func(change func(*Runtime)) Runtime {
		r := good
		change(&r)
		return r
	}
	was := func(s v1.ConditionStatus) *v1.NodeCondition {
		return &v1.NodeCondition{Type: v1.NodeReady, Status: s, Reason: "Was", Message: "as before"}
	}
	for name, test := range map[string]struct {
		runtime Runtime
		cfg     Config
		old     *v1.NodeCondition
		missing bool
		down    bool
		unheard bool
		csiNode string
		status  v1.ConditionStatus
		message string
	}{
		"all is well":                          {runtime: good, status: "True", message: "kubelet is posting ready status"},
		"nothing is known of a new node":       {runtime: Runtime{}, status: "False", message: "container runtime status check may not have completed yet"},
		"nothing is known yet after a restart": {runtime: Runtime{Unanswered: 39 * time.Second}, old: was("True"), status: "True", message: "as before"},
		"nothing was ever known":               {runtime: Runtime{Unanswered: 40 * time.Second}, old: was("True"), status: "False", message: "container runtime status check may not have completed yet"},
		"nothing is known, and the control plane had given the node up": {
			runtime: Runtime{}, old: was("Unknown"), status: "False", message: "container runtime status check may not have completed yet",
		},
		"podsync is away for a moment": {runtime: with(func(r *Runtime) { r.Unanswered, r.Err = 30*time.Second, "refused" }), old: was("True"), status: "True", message: "kubelet is posting ready status"},
		"podsync stays away": {
			runtime: with(func(r *Runtime) { r.Unanswered, r.Err = 41*time.Second, "refused" }), old: was("True"),
			status: "False", message: "podsync, the process that holds the container runtime, has not answered for 41s (refused); start it or look at its log",
		},
		"the runtime says that it is not ready": {
			runtime: with(func(r *Runtime) { r.Ready, r.Message = false, "reason:Booting message:wait" }), old: was("True"),
			status: "False", message: "container runtime not ready: RuntimeReady=false reason:Booting message:wait",
		},
		"the runtime says that it is not ready, through a podsync of before": {
			runtime: with(func(r *Runtime) { r.Ready, r.Message = false, "RuntimeReady=false reason:Booting message:wait" }), old: was("True"),
			status: "False", message: "container runtime not ready: RuntimeReady=false reason:Booting message:wait",
		},
		"neither the runtime nor the network is ready": {
			runtime: with(func(r *Runtime) {
				r.Ready, r.Message, r.NetworkReady, r.NetworkMessage = false, "reason:A message:a", false, "reason:B message:b"
			}), old: was("True"),
			status: "False", message: "[container runtime not ready: RuntimeReady=false reason:A message:a, container runtime network not ready: NetworkReady=false reason:B message:b]",
		},
		"a call to the runtime failed": {
			runtime: with(func(r *Runtime) { r.Ready, r.Message, r.Silence = false, "connection refused", 10*time.Second }), old: was("True"), status: "True", message: "as before",
		},
		"the runtime is silent": {
			runtime: with(func(r *Runtime) { r.Ready, r.Message, r.Silence = false, "connection refused", 31*time.Second }), old: was("True"), status: "False", message: "container runtime is down",
		},
		"the runtime answers and lists nothing": {
			runtime: with(func(r *Runtime) { r.Unlisted = 200 * time.Second }), old: was("True"), status: "False",
			message: "PLEG is not healthy: pleg was last seen active 3m0s ago; threshold is 3m0s (the container runtime answers, but its containers cannot be listed: look at its log)",
		},
		"its containers were listed a while ago": {
			runtime: with(func(r *Runtime) { r.Unlisted = 3 * time.Minute }), status: "True", message: "kubelet is posting ready status",
		},
		"no network": {
			runtime: with(func(r *Runtime) {
				r.NetworkReady, r.NetworkMessage = false, "reason:NetworkPluginNotReady message:no CNI"
			}),
			status: "False", message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no CNI",
		},
		"the machine goes down": {runtime: good, down: true, status: "False", message: "node is shutting down"},
		"the machine goes down and nothing else is known": {
			old: was("True"), down: true, status: "False", message: "node is shutting down",
		},
		"a run before this one has said that the machine goes down": {
			runtime: good, unheard: true, old: &v1.NodeCondition{Status: v1.ConditionFalse, Message: "[network state unknown, node is shutting down]"},
			status: "False", message: "node is shutting down",
		},
		"a run before this one has said that it is Ready": {
			runtime: good, unheard: true, old: was("True"), status: "True", message: "kubelet is posting ready status",
		},
		"the machine goes down no more": {
			runtime: good, old: &v1.NodeCondition{Status: v1.ConditionFalse, Message: "node is shutting down"},
			status: "True", message: "kubelet is posting ready status",
		},
		"the network says nothing": {runtime: with(func(r *Runtime) { r.NetworkReady = false }), status: "False", message: "network state unknown"},
		"no local storage": {
			cfg: Config{NoLocalStorage: true}, runtime: with(func(r *Runtime) { r.NetworkReady = false }), missing: true,
			status: "False", message: "[network state unknown, missing node capacity for resources: cpu, memory, pods]",
		},
		"no CSINode": {
			runtime: with(func(*Runtime) {}), csiNode: "CSINode is not yet initialized", status: "False", message: "CSINode is not yet initialized",
		},
		"no CSINode and no runtime yet": {
			csiNode: "CSINode is not yet initialized", status: "False",
			message: "[container runtime status check may not have completed yet, CSINode is not yet initialized]",
		},
		"no CSINode and not Ready before": {
			runtime: with(func(*Runtime) {}), csiNode: "CSINode is not yet initialized", old: was("False"), status: "False", message: "CSINode is not yet initialized",
		},
		"no CSINode for a process that has just started": {
			runtime: with(func(*Runtime) {}), csiNode: "CSINode is not yet initialized", old: was("True"), status: "True", message: "kubelet is posting ready status",
		},
		"two problems": {
			runtime: with(func(r *Runtime) { r.NetworkReady = false }), missing: true,
			status: "False", message: "[network state unknown, missing node capacity for resources: cpu, memory, pods, ephemeral-storage]",
		},
	} {
		n := &v1.Node{}
		if !test.missing {
			n.Status.Capacity = list("cpu", "1", "memory", "1", "pods", "1", "ephemeral-storage", "1")
		}
		got := readyCondition(test.cfg, n, Facts{Runtime: test.runtime, ShuttingDown: test.down, ShutdownUnheard: test.unheard, CSINode: test.csiNode}, test.old)
		if got.Status != test.status || got.Message != test.message {
			t.Errorf("%s: %s, %q; want %s, %q", name, got.Status, got.Message, test.status, test.message)
		}
		if want := map[v1.ConditionStatus]string{"True": "KubeletReady", "False": "KubeletNotReady"}[got.Status]; got.Reason != want && got.Reason != "Was" {
			t.Errorf("%s: reason %s; want %s", name, got.Reason, want)
		}
	}
}

func TestConditionsStandInOrderAndKeepTheirTransitionTime(t *testing.T) {
	n, events := New(Config{Name: "n"}, Facts{Runtime: Runtime{}}, now)
	var order []string
	for _, c := range n.Status.Conditions {
		order = append(order, string(c.Type))
	}
	if got := strings.Join(order, " "); got != "MemoryPressure DiskPressure PIDPressure Ready" {
		t.Errorf("conditions %s", got)
	}
	var reasons []string
	for _, e := range events {
		reasons = append(reasons, e.Reason)
	}
	if got := strings.Join(reasons, " "); got != "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID" {
		t.Errorf("events %s", got)
	}
	later := now.Add(time.Minute)
	next, events := Update(Config{Name: "n"}, Facts{Pressure: map[pressure.Kind]bool{pressure.Disk: true}, Runtime: Runtime{}}, n, later)
	if c := condition(next, "MemoryPressure"); !c.LastTransitionTime.Time.Equal(now) || !c.LastHeartbeatTime.Time.Equal(later) {
		t.Errorf("memory: transition %s, heartbeat %s", c.LastTransitionTime, c.LastHeartbeatTime)
	}
	c := condition(next, "DiskPressure")
	if !c.LastTransitionTime.Time.Equal(later) || c.Reason != "KubeletHasDiskPressure" || c.Message != "kubelet has disk pressure" {
		t.Errorf("disk %+v", c)
	}
	if len(events) != 1 || events[0].Message != "Node n status is now: NodeHasDiskPressure" {
		t.Errorf("events %+v", events)
	}
	if Same(&n.Status, &next.Status) {
		t.Error("a status with a new pressure is the same")
	}
	if again, _ := Update(Config{Name: "n"}, Facts{Runtime: Runtime{}}, next, later.Add(time.Second)); !Same(&next.Status, &again.Status) {
		t.Error("a status with only new heartbeats is not the same; the pressure was not known anew")
	}
}

func TestImagesAreTheLargestWithFewNames(t *testing.T) {
	var in []Image
	for i := range 4 {
		in = append(in, Image{ID: fmt.Sprint(i), SizeBytes: uint64(i / 2), Digests: []string{fmt.Sprint("d", i), "2", "3"}, Tags: []string{"4", "5", "6"}})
	}
	got := images(in, 3)
	if len(got) != 3 || got[0].Names[0] != "d3" || got[1].Names[0] != "d2" || got[2].Names[0] != "d1" || len(got[0].Names) != 5 {
		t.Errorf("images %+v", got)
	}
	if all := images(in, -1); len(all) != 4 {
		t.Errorf("%d images without a limit; want 4", len(all))
	}
}

func TestANewNodeCarriesWhatItWasConfiguredWith(t *testing.T) {
	cfg := Config{
		Name: "n", Labels: map[string]string{"a": "b", v1.LabelHostname: "mine"}, Taints: []v1.Taint{{Key: "t"}}, ProviderID: "x://1", ExternalCloud: true, NodeIP: "10.0.0.1",
	}
	n, _ := New(cfg, Facts{}, now)
	if n.Labels["a"] != "b" || n.Labels[v1.LabelHostname] != "mine" || n.Labels[v1.LabelOSStable] != "linux" || n.Spec.ProviderID != "x://1" {
		t.Errorf("labels %v, provider %s", n.Labels, n.Spec.ProviderID)
	}
	if len(n.Spec.Taints) != 2 || n.Spec.Taints[1].Key != "node.cloudprovider.kubernetes.io/uninitialized" || n.Annotations["alpha.kubernetes.io/provided-node-ip"] != "10.0.0.1" {
		t.Errorf("taints %v, annotations %v", n.Spec.Taints, n.Annotations)
	}
	if len(cfg.Taints) != 1 {
		t.Error("the configuration's taints were changed")
	}
	for _, family := range []string{"0.0.0.0", "::"} {
		any, _ := New(Config{Name: "n", ExternalCloud: true, NodeIP: family}, Facts{}, now)
		if ip, told := any.Annotations["alpha.kubernetes.io/provided-node-ip"]; told {
			t.Errorf("the cloud is asked for the address %s, which no machine has", ip)
		}
	}
	same, changed := Reconcile(cfg, n)
	if changed || same.Labels[v1.LabelHostname] != "mine" {
		t.Errorf("a Node as it was made has to be mended: %v", same.Labels)
	}
	n.Labels = map[string]string{"other": "stays"}
	if mended, changed := Reconcile(cfg, n); !changed || mended.Labels[v1.LabelArchStable] == "" || mended.Labels["other"] != "stays" || mended.Labels["a"] == "b" {
		t.Errorf("mended labels %v", mended.Labels)
	}
}

func TestTheNodeThatIsGivenIsNotChanged(t *testing.T) {
	old := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	old.Status.Capacity = list("cpu", "1")
	Update(Config{Name: "n"}, Facts{Machine: &Machine{Cores: 8}, Runtime: Runtime{Known: true}}, old, now)
	if q := old.Status.Capacity["cpu"]; q.Value() != 1 || len(old.Status.Conditions) != 0 {
		t.Errorf("the old Node is now %+v", old.Status)
	}
}

func TestVolumesStayInUseUntilItIsKnownWhichAre(t *testing.T) {
	old := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"a"}}}
	for _, c := range []struct {
		known []string
		want  []v1.UniqueVolumeName
	}{
		{nil, []v1.UniqueVolumeName{"a"}}, {[]string{}, nil}, {[]string{"a", "b"}, []v1.UniqueVolumeName{"a", "b"}},
	} {
		if n, _ := Update(Config{}, Facts{VolumesInUse: c.known}, old, time.Now()); !slices.Equal(n.Status.VolumesInUse, c.want) {
			t.Errorf("of %v the Node says %v", c.known, n.Status.VolumesInUse)
		}
	}
}

func TestANodeWhoseVolumesNoControllerAttachesDoesNotSayThatOneDoes(t *testing.T) {
	cfg := Config{Name: "n", NoController: true}
	made, _ := New(cfg, Facts{}, time.Unix(0, 0))
	if _, says := made.Annotations[controllerManaged]; says {
		t.Errorf("a new one: %v", made.Annotations)
	}
	old, _ := New(Config{Name: "n"}, Facts{}, time.Unix(0, 0))
	old.Annotations["mine"] = "1"
	now, changed := Reconcile(cfg, old)
	if _, says := now.Annotations[controllerManaged]; says || !changed || now.Annotations["mine"] != "1" {
		t.Errorf("one from before: %v, changed %v", now.Annotations, changed)
	}
	if _, changed := Reconcile(cfg, now); changed {
		t.Error("it is changed again")
	}
}
