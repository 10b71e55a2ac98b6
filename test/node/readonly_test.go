package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// What the kernel does of a disk with errors: it becomes read-only. Nothing can be
// begun there, but what runs is served on, also by processes that are started anew.
func TestADiskThatBecomesReadOnlyHarmsNoPodThatRuns(t *testing.T) {
	h := build(t, plan{supervised: true})
	if onKubelet() {
		t.Skip("the kubelet does not start on a read-only disk")
	}
	h.create(webApp("bystander"))
	h.waitReady("bystander", 2*time.Minute)
	before, err := h.containerIDs()
	h.must(err)
	guard := h.guard()

	dir, writable := h.node.RootDir, false
	over := func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }
	h.must(unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""))
	// Else what goes from above the pods' volumes would take them along.
	h.must(unix.Mount("", dir, "", unix.MS_PRIVATE|unix.MS_REC, ""))
	t.Cleanup(func() { // not when the test has done it, for then it would be another's
		if !writable {
			over()
		}
	})
	h.must(unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	podsync := func() int {
		pid, _ := childOf(h.node.Processes["run"].Pid(), "podsync") // 0 while there is none
		return pid
	}
	was := podsync()
	h.killService("podsync")
	h.eventually(time.Minute, "another podsync knows the pods", func() error {
		if is := podsync(); is == was || is == 0 {
			return fmt.Errorf("podsync is process %d", is)
		}
		pods, err := h.nodePods()
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Name == "bystander" && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("it knows %d pods, and not the one that runs", len(pods.Items))
	})
	h.create(webApp("latecomer"))
	h.eventually(time.Minute, "a pod that is to start says why it does not", func() error {
		out, err := h.polylet("explain", "latecomer")
		return boolError(err == nil && strings.Contains(out, "read-only file system") && strings.Contains(out, "dmesg"), "%v: %s", err, out)
	})

	over()
	writable = true
	h.waitReady("latecomer", 2*time.Minute)
	for _, complaint := range guard.stop() {
		t.Error(complaint)
	}
	after, err := h.containerIDs()
	h.must(err)
	for id, pod := range before {
		if after[id] != pod {
			t.Errorf("container %.12s of pod %s does not run any more", id, pod)
		}
	}
}
