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

	"github.com/polylet/polylet/internal/testkit/eventually"
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
	var pid int
	eventually.True(t, "the plugin has not begun", func() bool {
		raw, _ := os.ReadFile(b.log + ".pid")
		var err error
		pid, err = strconv.Atoi(string(raw))
		return err == nil
	})
	_ = podsync.Process.Kill()
	_ = podsync.Wait()
	t.Cleanup(func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	eventually.True(t, "the plugin is there still", func() bool {
		return errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) || zombie(pid)
	})
}

// zombie says whether a process has ended, and nobody has taken note of it.
func zombie(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(raw), ") Z ")
}
