package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volumesOf is how many volumes of a driver the CSINode says that the node can have.
func (h *house) volumesOf(driver string) (int32, error) {
	n, err := h.cluster.Client.StorageV1().CSINodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	for _, d := range n.Spec.Drivers {
		if d.Name == driver && d.Allocatable != nil && d.Allocatable.Count != nil {
			return *d.Allocatable.Count, nil
		}
	}
	return 0, fmt.Errorf("driver %s says nothing in %+v", driver, n.Spec)
}

// TestTheCSINodeIsThereWithAReadyNodeAndFollowsHowMuchRoomThereIs changes the driver's
// mind, and what the cluster says of how often it is asked.
func TestTheCSINodeIsThereWithAReadyNodeAndFollowsHowMuchRoomThereIs(t *testing.T) {
	h := build(t, plan{})
	if _, err := h.cluster.Client.StorageV1().CSINodes().Get(h.ctx, nodeName, metav1.GetOptions{}); err != nil {
		t.Errorf("the Node is Ready without its CSINode: %v", err)
	}
	d := h.csi("-max-volumes=3")
	says := func(within time.Duration, want int32) {
		h.Helper()
		h.eventually(within, fmt.Sprintf("the CSINode says %d", want), func() error {
			n, err := h.volumesOf(csiDriver)
			if err != nil {
				return err
			}
			return boolError(n == want, "it says %d", n)
		})
	}
	says(time.Minute, 3)
	h.must(os.WriteFile(filepath.Join(d.faults, "max-volumes"), []byte("5"), 0o600))
	objects := h.cluster.Client.StorageV1().CSIDrivers()
	object, err := objects.Get(h.ctx, csiDriver, metav1.GetOptions{})
	h.must(err)
	object.Spec.NodeAllocatableUpdatePeriodSeconds = ptr(int64(10))
	_, err = objects.Update(h.ctx, object, metav1.UpdateOptions{})
	h.must(err)
	says(30*time.Second, 5)
	if onKubelet() {
		return
	}
	h.must(os.WriteFile(filepath.Join(d.faults, "max-volumes"), []byte("1"), 0o600))
	undo := d.fault("NodePublishVolume", "ResourceExhausted no room")
	h.create(withCSI("refused"))
	says(8*time.Second, 1)
	undo()
	h.waitReady("refused", 2*time.Minute)
}
