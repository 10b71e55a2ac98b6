package mount

import (
	"os"
	"testing"
)

func TestWhoeverIsAskedAboutAFilesystemIsKnownByItsType(t *testing.T) {
	for kind, want := range map[string]bool{"nfs": true, "nfs4": true, "cifs": true, "fuse.s3": true, "fuse": true, "ceph": true, "ext4": false, "tmpfs": false, "overlay": false, "fusectl": false} {
		if isServed(kind) != want {
			t.Errorf("%s: %v", kind, !want)
		}
	}
}

func TestWhatTheNodeItselfAnswersForIsNotServed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	k, dir := New(Config{}), t.TempDir()
	if err := k.Tmpfs(dir, 1<<20); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = k.Unmount(dir) })
	if served, err := k.Served(dir); err != nil || len(served) != 0 {
		t.Errorf("%v, %v", served, err)
	}
}
