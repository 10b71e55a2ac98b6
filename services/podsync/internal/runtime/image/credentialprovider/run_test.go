package credentialprovider

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAPluginIsNotToldWhatTheSupervisorToldPodsync(t *testing.T) {
	got := withoutSystemd([]string{"PATH=/bin", "NOTIFY_SOCKET=/run/x", "LISTEN_PID=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=podsync", "WATCHDOG_USEC=1", "WATCHDOG_PID=1", "POLYLET_LIFELINE=5 1m0s", "AWS_REGION=x"})
	if !slices.Equal(got, []string{"PATH=/bin", "AWS_REGION=x"}) {
		t.Errorf("%q", got)
	}
}

// TestAPluginEndsWithPodsync, however that ends: nobody would end it later.
func TestAPluginEndsWithPodsync(t *testing.T) {
	b := newBench(t, "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	podsync := exec.CommandContext(t.Context(), self)
	podsync.Env = append(os.Environ(), behaviour+"="+asPodsync, "PLUGIN_DIR="+b.dir, "PLUGIN_LOG="+b.log)
	if err := podsync.Start(); err != nil {
		t.Fatal(err)
	}
	pid := waitFor(t, "the plugin has not begun", func() (int, bool) {
		raw, _ := os.ReadFile(b.log + ".pid")
		pid, err := strconv.Atoi(string(raw))
		return pid, err == nil
	})
	_ = podsync.Process.Kill()
	_ = podsync.Wait()
	t.Cleanup(func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	waitFor(t, "the plugin is there still", func() (int, bool) {
		return 0, errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) || zombie(pid)
	})
}

// zombie says whether a process has ended, and nobody has taken note of it.
func zombie(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(raw), ") Z ")
}

// waitFor waits for something of a real process.
func waitFor(t *testing.T, failure string, is func() (int, bool)) int {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if got, ok := is(); ok {
			return got
		}
	}
	t.Fatal(failure)
	return 0
}
