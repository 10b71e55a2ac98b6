package node_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAnOlderEtcdIsRestored takes a backup of etcd, deletes one pod and creates another,
// and brings the backup back: the deleted one runs again, and the other does not any more.
func TestAnOlderEtcdIsRestored(t *testing.T) {
	h := build(t, plan{supervised: true})
	h.create(app("stays", "sleep"), app("restored", "sleep"))
	h.waitReady("stays", time.Minute)
	old := h.waitReady("restored", time.Minute).Status.ContainerStatuses[0].ContainerID
	restore, err := h.cluster.Backup(h.ctx)
	h.must(err)
	pods := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	h.must(pods.Delete(h.ctx, "restored", metav1.DeleteOptions{}))
	h.create(app("lost", "sleep"))
	h.waitReady("lost", time.Minute)
	h.eventually(time.Minute, "the deleted pod is gone", func() error {
		_, err := h.pod("restored")
		return boolError(apierrors.IsNotFound(err), "%v", err)
	})
	before := h.pids()

	h.must(restore(h.ctx))
	h.eventually(time.Minute, "the restored pod runs again", func() error {
		p, err := h.pod("restored")
		if err != nil {
			return err
		}
		s := p.Status.ContainerStatuses
		return boolError(p.Status.Phase == corev1.PodRunning && len(s) == 1 && s[0].State.Running != nil && s[0].ContainerID != old, "%s", describe(p))
	})
	h.eventually(time.Minute, "the pod that the restore lost is gone from the runtime", func() error {
		list, err := h.sandboxes("lost")
		return boolError(err == nil && len(list) == 0, "%v %v", list, err)
	})
	stays, err := h.pod("stays")
	h.must(err)
	if stays.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod of before and after: %s", describe(stays))
	}
	h.wantPIDs(before)
}
