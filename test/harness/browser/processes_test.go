package browser

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
)

func TestWhatABrowserLeavesIsEnded(t *testing.T) {
	group := exec.Command("sleep", "1000")
	group.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	named := exec.Command("sh", "-c", "sleep 1000; exit", "--user-data-dir=/nowhere/profile-of-this-test")
	named.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	other := exec.Command("sleep", "1000")
	ended := map[*exec.Cmd]chan error{}
	for _, cmd := range []*exec.Cmd{group, named, other} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		ended[cmd] = done
		go func() { done <- cmd.Wait() }()
		t.Cleanup(func() {
			if cmd == named {
				syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its child too
			}
			cmd.Process.Kill()
		})
	}
	const profile = "/nowhere/profile-of-this-test"
	if got := remaining(group.Process.Pid, profile); !slices.Contains(got, group.Process.Pid) || !slices.Contains(got, named.Process.Pid) {
		t.Errorf("found %v, want %d and %d", got, group.Process.Pid, named.Process.Pid)
	}
	endAll(group.Process.Pid, profile)
	<-ended[group]
	<-ended[named]
	if got := remaining(group.Process.Pid, profile); len(got) != 0 {
		t.Errorf("%v are left", got)
	}
	select {
	case err := <-ended[other]:
		t.Errorf("a stranger was ended: %v", err)
	default:
	}
}
