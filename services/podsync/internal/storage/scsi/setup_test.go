package scsi

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// grouped is a volume of a pod whose files are its group's.
func (b *bench) grouped() volume.Request {
	b.make("target.json", `{"0": "sda"}`)
	r := b.inline("uid-1", "v", source(0))
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(os.Getgid()))}
	return r
}

// afterAnotherSetUp has the pod make a file that is nobody else's, and says what has become of it once the
// volume was set up again.
func (b *bench) afterAnotherSetUp(r volume.Request) os.FileMode {
	b.t.Helper()
	key := filepath.Join(r.Dir, "ssh_host_key")
	if err := os.WriteFile(key, []byte("private"), 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.restart()
	b.setUp(r)
	info, err := os.Stat(key)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.Remove(key); err != nil { // what is not mounted keeps the directory
		b.t.Fatal(err)
	}
	return info.Mode().Perm()
}

// TestARestartLeavesTheFilesOfAVolumeThatIsUsedAsTheyAre: a kubelet gives a disk's files to the
// pod's group when it mounts it for the pod, and never again. So it is with one that a kubelet
// has mounted.
func TestARestartLeavesTheFilesOfAVolumeThatIsUsedAsTheyAre(t *testing.T) {
	b := newBench(t)
	r := b.grouped()
	b.setUp(r)
	if mode := b.afterAnotherSetUp(r); mode != 0o600 {
		t.Errorf("after a restart of podsync the pod's file is %v", mode)
	}
	b.takeDown(r)
	b.settleAll()
	b.bare()
}

// TestARestartGoesOnToGiveFilesToAPodsGroup that were not all given: the pod has not begun.
func TestARestartGoesOnToGiveFilesToAPodsGroup(t *testing.T) {
	b := newBench(t)
	r := b.grouped()
	b.deps.Apart = &answers{inner: Calls(), gives: os.ErrDeadlineExceeded}
	if _, err := b.Setup(t.Context(), r); err == nil {
		t.Fatal("it is given")
	}
	if mode := b.afterAnotherSetUp(r); mode != 0o660 {
		t.Errorf("after a restart of podsync the file is %v", mode)
	}
	if mode := b.afterAnotherSetUp(r); mode != 0o600 {
		t.Errorf("after another restart of podsync the pod's file is %v", mode)
	}
	b.takeDown(r)
	b.settleAll()
	b.bare()
}

// TestNothingIsKeptOfAPodThatIsGone though it was never taken down here.
func TestNothingIsKeptOfAPodThatIsGone(t *testing.T) {
	b := newBench(t)
	r := b.grouped()
	b.deps.Apart = &answers{inner: Calls(), gives: os.ErrDeadlineExceeded}
	if _, err := b.Setup(t.Context(), r); err == nil {
		t.Fatal("it is given")
	}
	if err := b.mounts.Unmount(r.Dir); err != nil { // by another agent
		t.Fatal(err)
	}
	if err := os.Remove(r.Dir); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.settlesTheOne()
}
