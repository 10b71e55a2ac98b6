package execute

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// A pod may have thousands of containers, which are removed one after the other.
func TestTheRemovalOfOneContainersLogsLooksIntoNoOthers(t *testing.T) {
	cfg := Config{PodLogsDir: t.TempDir()}
	h := &host{}
	e := newExecutor(h, cfg)
	logs := filepath.Join(cfg.PodLogsDir, "ns_p_u")
	for _, name := range []string{"c", "other"} {
		if err := os.MkdirAll(filepath.Join(logs, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(logs, name, "1.log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	told, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(told) }()
	if _, err := unix.InotifyAddWatch(told, filepath.Join(logs, "other"), unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	h.now.Containers = []podstate.Container{{ID: "made", Name: "c", RestartCount: 1, State: podstate.StateExited}}
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveContainer, Object: "made"}, ID: "made", Container: "c"})); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(logs, "c", "1.log")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is still there: %v", err)
	}
	if n, err := unix.Read(told, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the other container's logs were opened: %d bytes of events, %v", n, err)
	}
}
