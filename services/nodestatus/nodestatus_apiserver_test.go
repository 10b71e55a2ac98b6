package nodestatus

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestAnApiserverThatIsAwayIsTriedUntilItIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.api.Partition(fakeapiserver.Refuse)
		service, stop := w.start()
		defer stop()
		time.Sleep(30 * time.Second)
		view := service.keeper.View()
		if view.Registered || view.LastError == "" || view.Node == nil {
			t.Errorf("view %+v; want a Node that is not registered, and why", view)
		}
		w.api.Heal()
		time.Sleep(8 * time.Second)
		w.wantReady(v1.ConditionTrue, "")
		w.api.Partition(fakeapiserver.Refuse)
		time.Sleep(10 * time.Minute)
		w.api.Heal()
		time.Sleep(12 * time.Second)
		if lease := service.lease.Status(); lease.LastError != "" || time.Since(lease.RenewTime) > 12*time.Second {
			t.Errorf("lease %+v; want it renewed after the apiserver came back", lease)
		}
	})
}

func TestThatLabelsCannotBePutBackIsLoggedOnceInARow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var lines atomic.Int32
		w.log = func(line string) {
			if strings.Contains(line, "Labels were not put back") {
				lines.Add(1)
			}
		}
		var refusing atomic.Bool
		w.refuses = func(q fakeapiserver.Request) bool {
			return refusing.Load() && q.Resource == "nodes" && q.Subresource == "" && q.Verb == "patch"
		}
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		for row := range int32(2) {
			refusing.Store(true)
			n := w.api.Node("n1")
			n.Labels[v1.LabelOSStable] = "dummyOS"
			if _, err := w.api.Admin().CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			if got := lines.Load(); got != row+1 {
				t.Errorf("%d lines after %d rows of failures", got, row+1)
			}
			refusing.Store(false)
			time.Sleep(time.Minute)
			if n := w.api.Node("n1"); n.Labels[v1.LabelOSStable] != "linux" {
				t.Errorf("labels %v", n.Labels)
			}
		}
	})
}

func TestLabelsThatSomebodyChangedArePutBackAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		nodes := w.api.Admin().CoreV1().Nodes()
		change := func(edit func(*v1.Node)) {
			t.Helper()
			n, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			edit(n)
			if _, err := nodes.Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		change(func(n *v1.Node) { n.Labels[v1.LabelOSStable] = "dummyOS"; delete(n.Labels, v1.LabelArchStable) })
		time.Sleep(time.Second)
		if n := w.api.Node("n1"); n.Labels[v1.LabelOSStable] != "linux" || n.Labels[v1.LabelArchStable] == "" {
			t.Errorf("labels %v a second after they were changed", n.Labels)
		}
		w.api.Partition(fakeapiserver.Refuse)
		change(func(n *v1.Node) { n.Labels[v1.LabelOSStable] = "dummyOS" })
		time.Sleep(30 * time.Second)
		w.api.Heal()
		time.Sleep(25 * time.Second) // the watch is opened again after at most 10 s, then a look
		if n := w.api.Node("n1"); n.Labels[v1.LabelOSStable] != "linux" {
			t.Errorf("labels %v after the apiserver was back", n.Labels)
		}
	})
}

func TestCordonAndUncordonAreEventsOfTheNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		if got := w.events(); slices.Contains(got, "NodeSchedulable") || slices.Contains(got, "NodeNotSchedulable") {
			t.Errorf("events %v before anything happened", got)
		}
		for _, step := range []struct{ patch, reason string }{
			{`{"spec":{"unschedulable":true}}`, "NodeNotSchedulable"}, {`{"spec":{"unschedulable":null}}`, "NodeSchedulable"},
		} {
			if _, err := w.api.Admin().CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(step.patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if got := w.events(); !slices.Contains(got, step.reason) {
				t.Errorf("events %v, want %s", got, step.reason)
			}
		}
	})
}

// The apiserver refuses every write of a node that names owners (CVE-2025-5187).
func TestOwnersOfTheNodeAreNeverSent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		nodes := w.api.Admin().CoreV1().Nodes()
		owned := []byte(`{"metadata":{"labels":{"kubernetes.io/os":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"u"}]}}`)
		if _, err := nodes.Patch(t.Context(), "n1", types.MergePatchType, owned, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := w.api.Node("n1"); len(n.OwnerReferences) != 1 || n.Labels[v1.LabelOSStable] != "linux" {
			t.Errorf("owners %v, labels %v; want what somebody else set kept, and the labels mended", n.OwnerReferences, n.Labels)
		}
		writes := 0
		for _, r := range w.api.Requests() {
			if r.Admin || r.Resource != "nodes" || r.Verb == "get" || r.Verb == "watch" {
				continue
			}
			if writes++; r.Status >= 400 {
				t.Errorf("%s %s was answered with %d", r.Verb, r.URL, r.Status)
			}
		}
		if writes < 3 {
			t.Errorf("%d writes; want registration, labels and statuses", writes)
		}
		w.wantReady(v1.ConditionTrue, "")
	})
}

func TestWhatSomebodyElseWroteIsMendedOrKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		nodes := w.api.Admin().CoreV1().Nodes()
		n, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason = v1.ConditionUnknown, "NodeStatusUnknown"
		}
		n.Status.Capacity["example.com/gpu"] = n.Status.Capacity["pods"]
		if _, err := nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.wantReady(v1.ConditionTrue, "kubelet is posting ready status")
		after := w.api.Node("n1")
		if gpus := after.Status.Allocatable["example.com/gpu"]; gpus.Value() != 110 {
			t.Errorf("allocatable %v; want the extended resource kept", after.Status.Allocatable)
		}
		w.podsync.set(func(p *podsync) {
			p.runtime.KubeletDevices = &podsyncv1.KubeletDevices{Checkpoint: true, Resources: []string{"example.com/gpu"}}
		})
		time.Sleep(time.Minute)
		after = w.api.Node("n1")
		if gpus, named := after.Status.Allocatable["example.com/gpu"]; !named || !gpus.IsZero() {
			t.Errorf("allocatable %v; want none of a device plugin that nobody serves", after.Status.Allocatable)
		}
	})
}

func TestALeaseThatSomebodyElseWroteOrDeletedIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		leases := w.api.Admin().CoordinationV1().Leases("kube-node-lease")
		there, err := leases.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		there.Labels = map[string]string{"mine": "yes"}
		if there, err = leases.Update(t.Context(), there, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		renewed, err := leases.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil || !renewed.Spec.RenewTime.After(there.Spec.RenewTime.Time) || renewed.Labels["mine"] != "yes" {
			t.Errorf("lease %+v, %v; want it renewed and the label kept", renewed, err)
		}
		if err := leases.Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		if again, err := leases.Get(t.Context(), "n1", metav1.GetOptions{}); err != nil || time.Since(again.Spec.RenewTime.Time) > 11*time.Second {
			t.Errorf("lease %+v, %v; want a new one", again, err)
		}
	})
}

func TestADeletedNodeIsNotMadeAgainUntilARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		service, stop := w.start()
		time.Sleep(time.Minute)
		if err := w.api.Admin().CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if w.api.Node("n1") != nil || service.keeper.View().Registered {
			t.Error("a deleted Node came back by itself")
		}
		stop()
		_, stop = w.start()
		defer stop()
		time.Sleep(time.Second)
		w.wantReady(v1.ConditionTrue, "")
	})
}

func TestARegisteredNodeKeepsItsTaintsAndGetsItsLabelsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		there := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"mine": "yes"}}}
		there.Status.NodeInfo.BootID = "b0"
		if _, err := w.api.Admin().CoreV1().Nodes().Create(t.Context(), there, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, stop := w.start()
		defer stop()
		time.Sleep(2 * time.Second)
		n := w.api.Node("n1")
		if n.Labels["mine"] != "yes" || n.Labels[v1.LabelHostname] != "n1" || n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" {
			t.Errorf("labels %v, annotations %v", n.Labels, n.Annotations)
		}
		if slices.ContainsFunc(n.Spec.Taints, func(x v1.Taint) bool { return x.Key == "dedicated" }) {
			t.Error("the taint of creation was put on a Node that was there")
		}
		if n.Status.NodeInfo.BootID != "b1" || !slices.Contains(w.events(), "Rebooted") {
			t.Errorf("boot id %s, events %v; want b1 and Rebooted", n.Status.NodeInfo.BootID, w.events())
		}
	})
}

// A machine that was given another type is told apart by it when its agent starts; from
// then on such labels may be the cloud's.
func TestWhereANodeStandsAndWhatItIsComesFromTheConfigurationWhenItJoins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		nodes := w.api.Admin().CoreV1().Nodes()
		there := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{v1.LabelInstanceTypeStable: "large", v1.LabelTopologyZone: "a"}}}
		if _, err := nodes.Create(t.Context(), there, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, stop := w.start()
		defer stop()
		time.Sleep(2 * time.Second)
		if n := w.api.Node("n1"); n.Labels[v1.LabelInstanceTypeStable] != "small" || n.Labels[v1.LabelTopologyZone] != "a" {
			t.Errorf("labels %v; want the type that is configured, and the zone that others gave", n.Labels)
		}
		cloud := []byte(`{"metadata":{"labels":{"` + v1.LabelInstanceTypeStable + `":"huge","kubernetes.io/os":"x"}}}`)
		if _, err := nodes.Patch(t.Context(), "n1", types.MergePatchType, cloud, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := w.api.Node("n1"); n.Labels[v1.LabelInstanceTypeStable] != "huge" || n.Labels[v1.LabelOSStable] != "linux" {
			t.Errorf("labels %v; want the type of the cloud, and what every Node has", n.Labels)
		}
	})
}

func TestTheAddressesThatTheCloudGaveStay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		change := w.change
		w.change = func(c *Config) { change(c); c.ExternalCloud = true }
		_, stop := w.start()
		time.Sleep(10 * time.Second)
		if n := w.api.Node("n1"); len(n.Status.Addresses) != 1 || n.Status.Addresses[0].Type != v1.NodeHostName {
			t.Errorf("addresses %v before the cloud has said any", n.Status.Addresses)
		}
		cloud := []byte(`{"status":{"addresses":[{"type":"InternalIP","address":"10.9.9.9"},{"type":"ExternalIP","address":"203.0.113.9"},{"type":"Hostname","address":"n1"}]}}`)
		if _, err := w.api.Admin().CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, cloud, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		stays := func(when string) {
			t.Helper()
			if n := w.api.Node("n1"); len(n.Status.Addresses) != 3 || n.Status.Addresses[1].Address != "203.0.113.9" {
				t.Errorf("addresses %v %s; want those of the cloud", n.Status.Addresses, when)
			}
		}
		time.Sleep(5 * time.Second)
		stays("after five seconds")
		time.Sleep(10 * time.Minute)
		stays("after ten minutes")
		stop()
		_, stop = w.start()
		defer stop()
		time.Sleep(10 * time.Minute)
		stays("after a restart")
	})
}

func TestWithoutAnApiserverTheNodeCanBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.standalone = true
		service, stop := w.start()
		defer stop()
		time.Sleep(time.Second)
		r, err := service.server.GetNode(t.Context(), &nodestatusv1.GetNodeRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var n v1.Node
		if err := n.Unmarshal(r.GetNode()); err != nil {
			t.Fatal(err)
		}
		if r.GetRegistered() || n.Name != "n1" || n.Status.Capacity.Cpu().Value() != 4 {
			t.Errorf("node %+v, registered %t", n.Status.Capacity, r.GetRegistered())
		}
		if _, err := service.server.GetLease(t.Context(), &nodestatusv1.GetLeaseRequest{}); err == nil {
			t.Error("a lease without an apiserver")
		}
	})
}
