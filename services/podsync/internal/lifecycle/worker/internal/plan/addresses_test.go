package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// podsync has just been started and does not know the node's addresses yet: the one
// that a pod on the host's network was told to have stands.
func TestAPodOnTheHostsNetworkKeepsItsAddressUntilTheNodesIsKnown(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.HostNetwork = true
	w := newWorld(pod)
	w.settle(time.Minute)
	if w.out.Status.PodIP == "" {
		t.Fatal("no address")
	}
	w.s.Node.IPs = nil
	if got := Plan(w.s).Status; got.PodIP == "" {
		t.Fatalf("the address of a pod that runs is taken back: podIP %q, podIPs %v", got.PodIP, got.PodIPs)
	}
}

func TestADualStackPodKeepsItsFirstFamilyUntilTheNodesAddressesAreKnown(t *testing.T) {
	w := newWorld(testPod(v1.RestartPolicyAlways, "a"))
	w.settle(time.Minute)
	w.s.Node.IPs = []string{"2001:db8::1", "192.0.2.1"}
	w.s.Observed.Sandboxes[0].IPs = []string{"10.88.0.2", "2001:db8:1::2"}
	w.step()
	if w.out.Status.PodIP != "2001:db8:1::2" {
		t.Fatalf("podIP %q", w.out.Status.PodIP)
	}
	w.s.Node.IPs = nil
	if got := Plan(w.s).Status; got.PodIP != "2001:db8:1::2" {
		t.Fatalf("the first address of a pod that runs becomes %q", got.PodIP)
	}
}

// What a container is given in its environment stays for all of its life.
func TestAContainerIsNotGivenAnAddressThatIsNotKnownYet(t *testing.T) {
	for name, tc := range map[string]struct {
		field       string
		hostNetwork bool
		ips         []string
		waits       bool
	}{
		"the host's":                     {"status.hostIP", false, []string{"10.0.0.1"}, true},
		"all of the host's":              {"status.hostIPs", false, []string{"10.0.0.1"}, true},
		"the pod's, which is the host's": {"status.podIP", true, nil, true},
		"the first of the pod's two":     {"status.podIP", false, []string{"10.0.0.1", "2001:db8::1"}, true},
		"the pod's only one":             {"status.podIP", false, []string{"10.0.0.1"}, false},
		"nothing of the kind":            {"metadata.name", true, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(v1.RestartPolicyAlways, "a")
			pod.Spec.HostNetwork = tc.hostNetwork
			pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: tc.field}}}}
			w := newWorld(pod)
			known := w.s.Node.IPs
			w.s.Node.IPs, w.ips = nil, tc.ips
			w.settle(time.Minute)
			isAddress := func(wait podstate.Wait) bool { return wait.Kind == "address" && wait.Object == "a" }
			if a := w.newest("a"); (a == nil) != tc.waits || slices.ContainsFunc(w.out.Waits, isAddress) != tc.waits {
				t.Fatalf("container %v, waits for %v", a, w.out.Waits)
			}
			if tc.field == "status.podIP" { // a node that has none: the pod may be what gives it one
				w.s.Node.IPsKnown = true
				w.settle(time.Minute)
				if w.newest("a") == nil {
					t.Errorf("it waits for an address that there is not: %v", w.out.Waits)
				}
			}
			w.s.Node.IPs = known
			w.settle(time.Minute)
			if a := w.newest("a"); a == nil || a.State != podstate.StateRunning {
				t.Errorf("container %v after the address was known", a)
			}
		})
	}
}

// The apiserver that has the Node's object may be a static pod.
func TestAStaticPodWaitsForItsAddressUntilItWasLookedForOnce(t *testing.T) {
	pod := testPod(v1.RestartPolicyAlways, "a")
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	w := newWorld(pod)
	w.s.Node.IPs, w.s.Static = nil, true
	w.settle(time.Minute)
	if w.newest("a") != nil {
		t.Error("it was started before anybody looked")
	}
	w.s.Node.IPsSought = true
	w.settle(time.Minute)
	if w.newest("a") == nil {
		t.Errorf("it waits: %v", w.out.Waits)
	}
}

func TestAPodShowsOneAddressOfEachFamilyTheNodesFirst(t *testing.T) {
	for _, tc := range []struct {
		name            string
		has, node, want []string
	}{
		{"one", []string{"10.0.0.1"}, []string{"192.0.2.1"}, []string{"10.0.0.1"}},
		{"two, in order", []string{"10.0.0.1", "fd00::1"}, []string{"192.0.2.1"}, []string{"10.0.0.1", "fd00::1"}},
		{"the node's family comes first", []string{"10.0.0.1", "fd00::1"}, []string{"2001:db8::1"}, []string{"fd00::1", "10.0.0.1"}},
		{"more than one of a family", []string{"10.0.0.1", "10.0.0.2", "fd00::1"}, []string{"192.0.2.1"}, []string{"10.0.0.1", "fd00::1"}},
		{"only the other family", []string{"fd00::1"}, []string{"192.0.2.1"}, []string{"fd00::1"}},
		{"none", nil, []string{"192.0.2.1"}, nil},
	} {
		if got := podutil.ShownIPs(tc.has, tc.node); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
