package mount

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/exec"
)

// runs stands in for programs: it keeps what was asked for, and says out and fails if that
// is not empty.
type runs struct {
	exec.Interface
	asked []string
	out   string
}

func (r *runs) CommandContext(ctx context.Context, cmd string, args ...string) exec.Cmd {
	r.asked = append([]string{cmd}, args...)
	if r.out == "" {
		return r.Interface.CommandContext(ctx, "true")
	}
	return r.Interface.CommandContext(ctx, "cat", "/nowhere/"+r.out)
}

func TestAServersDirectoryIsMountedByTheHostsMount(t *testing.T) {
	r := &runs{Interface: exec.New()}
	if err := mountRemote(t.Context(), r, func(string) bool { return true }, "s:/d", "/t", "nfs", []string{"nfsvers=4.1", "ro"}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"mount", "-t", "nfs", "-o", "nfsvers=4.1,ro", "s:/d", "/t"}; !slices.Equal(r.asked, want) {
		t.Errorf("asked for %q", r.asked)
	}
}

func TestWhatAMountSaysIsToldInTheKubeletsWordsAndAMissingHelperByName(t *testing.T) {
	for name, has := range map[string]bool{"the helper is there": true, "there is no helper": false} {
		r := &runs{Interface: exec.New(), out: "need-a-helper"}
		err := mountRemote(t.Context(), r, func(string) bool { return has }, "s:/d", "/t", "nfs", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "mount failed: exit status 1\nMounting command: mount\nMounting arguments: -t nfs s:/d /t\nOutput: cat: /nowhere/need-a-helper: ") {
			t.Errorf("%s: %v", name, err)
		}
		if told := err != nil && strings.Contains(err.Error(), "this node has no mount.nfs: install the NFS client"); told == has {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAServersNameIsNoOptionOfMount(t *testing.T) {
	r := &runs{Interface: exec.New()}
	for _, source := range []string{"-oexec:/d", "--bind:/d", "s\n:/d"} {
		if err := mountRemote(t.Context(), r, func(string) bool { return true }, source, "/t", "nfs", nil); err == nil || r.asked != nil {
			t.Errorf("%q: %v, asked for %q", source, err, r.asked)
		}
	}
}

func TestAMountOfAServerEndsAsAnyOther(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	k, dir := New(), t.TempDir()
	if err := k.Tmpfs(dir, 1<<20); err != nil {
		t.Skipf("mounts are not allowed here: %v", err)
	}
	for _, d := range []string{dir, dir, filepath.Join(dir, "absent")} {
		if err := k.UnmountRemote(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
	if mounted, err := k.Mounted(dir); err != nil || mounted {
		t.Errorf("still mounted: %v, %v", mounted, err)
	}
}
