package mount

import (
	"os"
	"strings"
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

func TestAPathIsKnownThatComesToAServer(t *testing.T) {
	links := map[string]string{"/data": "/mnt/nfs/a", "/var/run": "../run", "/loop": "loop", "/out": "/mnt/nfs/../local", "/up": "x/../../mnt/nfs"}
	readlink := func(path string) (string, error) {
		if strings.HasPrefix(path+"/", "/mnt/nfs/") {
			t.Errorf("the server is asked about %s", path)
		}
		if to, is := links[path]; is {
			return to, nil
		}
		return "", os.ErrInvalid
	}
	at := []string{"/mnt/nfs", "/run/user"}
	for path, want := range map[string]string{
		"/": "", "/mnt": "", "/mnt/nfs": "/mnt/nfs", "/mnt/nfs/a/b": "/mnt/nfs", "/mnt/nfsx": "", "/data": "/mnt/nfs", "/data/b": "/mnt/nfs",
		"/var/run/user/1": "/run/user", "/var/run/x": "", "/loop/a": "", "/out": "/mnt/nfs", "/up/b": "/mnt/nfs", "/etc/../mnt/nfs": "/mnt/nfs", "mnt/nfs": "/mnt/nfs",
	} {
		if got := askedAt(path, at, readlink); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := askedAt("/etc", []string{"/"}, readlink); got != "/" {
		t.Errorf("what lies on a server's root: %q", got)
	}
}

func TestAPathOfTheNodeItselfAsksNobody(t *testing.T) {
	if at, err := New(Config{}).AskedAt("/proc/self/mountinfo"); at != "" || err != nil {
		t.Errorf("%q, %v", at, err)
	}
}
