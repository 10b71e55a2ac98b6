package mount

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// runs stands in for programs: it keeps what was asked for, and says out and fails if that
// is not empty.
type runs struct {
	asked []string
	out   string
}

func (r *runs) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	r.asked = append([]string{name}, args...)
	if r.out == "" {
		return exec.CommandContext(ctx, "true")
	}
	return exec.CommandContext(ctx, "cat", "/nowhere/"+r.out)
}

func TestAServersDirectoryIsMountedByTheHostsMount(t *testing.T) {
	r := &runs{}
	if err := mountRemote(t.Context(), r.command, func(string) bool { return true }, "s:/d", "/t", "nfs", []string{"nfsvers=4.1", "ro"}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"mount", "-t", "nfs", "-o", "nfsvers=4.1,ro", "s:/d", "/t"}; !slices.Equal(r.asked, want) {
		t.Errorf("asked for %q", r.asked)
	}
}

func TestWhatAMountSaysIsToldInTheKubeletsWordsAndAMissingHelperByName(t *testing.T) {
	for name, has := range map[string]bool{"the helper is there": true, "there is no helper": false} {
		r := &runs{out: "need-a-helper"}
		err := mountRemote(t.Context(), r.command, func(string) bool { return has }, "s:/d", "/t", "nfs", nil)
		if err == nil || !strings.HasPrefix(err.Error(), "mount failed: exit status 1\nMounting command: mount\nMounting arguments: -t nfs s:/d /t\nOutput: cat: /nowhere/need-a-helper: ") {
			t.Errorf("%s: %v", name, err)
		}
		if told := err != nil && strings.Contains(err.Error(), "this node has no mount.nfs: install the NFS client"); told == has {
			t.Errorf("%s: %v", name, err)
		}
		want := map[bool]podstate.VolumeCause{true: podstate.VolumeServerRefused, false: podstate.VolumeProgramMissing}[has]
		if got := podstate.VolumeCauseOf(err); got != want {
			t.Errorf("%s: cause %d, want %d", name, got, want)
		}
	}
}

func TestAServersNameIsNoOptionOfMount(t *testing.T) {
	r := &runs{}
	for _, source := range []string{"-oexec:/d", "--bind:/d", "s\n:/d"} {
		if err := mountRemote(t.Context(), r.command, func(string) bool { return true }, source, "/t", "nfs", nil); podstate.VolumeCauseOf(err) != podstate.VolumeSpec || r.asked != nil {
			t.Errorf("%q: %v, asked for %q", source, err, r.asked)
		}
	}
}

// TestTheHelperOfAMountEndsWithIt: it is what waits for the server, and who takes the pod
// down would wait for it as long as the server likes.
func TestTheHelperOfAMountEndsWithIt(t *testing.T) {
	ended := errors.New("the pod is taken down")
	ctx, cancel := context.WithCancelCause(t.Context())
	alive := filepath.Join(t.TempDir(), "alive")
	// As mount does: it runs its helper, and waits for it.
	helped := func(ctx context.Context, _ string, _ ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", "sh -c 'echo $$ >\"$0\"; sleep 60; true' \"$0\"; true", alive)
	}
	done := make(chan error, 1)
	go func() {
		done <- mountRemote(ctx, helped, func(string) bool { return true }, "s:/d", "/t", "nfs", nil)
	}()
	for pid := ""; pid == ""; time.Sleep(10 * time.Millisecond) {
		raw, _ := os.ReadFile(alive)
		pid = strings.TrimSpace(string(raw))
	}
	cancel(ended)
	select {
	case err := <-done:
		if !errors.Is(err, ended) || podstate.VolumeCauseOf(err) != podstate.VolumeServerSilent {
			t.Errorf("%v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it is still waited for")
	}
	raw, _ := os.ReadFile(alive)
	eventually.True(t, "its helper goes on", func() bool {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(raw)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

// TestAMountThatLeavesAProgramBehindIsMadeAllTheSame: mount.nfs may begin rpc.statd, which
// stays and may hold what mount speaks to.
func TestAMountThatLeavesAProgramBehindIsMadeAllTheSame(t *testing.T) {
	var left *exec.Cmd
	leaves := func(ctx context.Context, _ string, _ ...string) *exec.Cmd {
		left = exec.CommandContext(ctx, "sh", "-c", "sleep 300 &")
		return left
	}
	t.Cleanup(func() { _ = syscall.Kill(-left.Process.Pid, syscall.SIGKILL) })
	began := time.Now()
	if err := mountRemote(t.Context(), leaves, func(string) bool { return true }, "s:/d", "/t", "nfs", nil); err != nil || time.Since(began) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
