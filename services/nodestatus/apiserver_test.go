package nodestatus

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
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
