package execute

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestLogsAreLinkedCountedAndRemoved(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{PodLogsDir: filepath.Join(dir, "pods"), ContainerLogsDir: filepath.Join(dir, "containers")}
	h := &host{}
	e := newExecutor(h, cfg)
	if _, err := e.Do(t.Context(), t.Context(), h.task(startC)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(cfg.ContainerLogsDir, "p_ns_c-made.log")
	if target, err := os.Readlink(link); err != nil || target != filepath.Join(cfg.PodLogsDir, "ns_p_u", "c", "1.log") {
		t.Errorf("link to %q, %v", target, err)
	}
	logs := filepath.Join(cfg.PodLogsDir, "ns_p_u", "c")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"0.log", "1.log", "1.log.20261120-120000.gz", "10.log", "x.log"} {
		if err := os.WriteFile(filepath.Join(logs, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := e.LogCounts(testPod()); got["c"] != 10 {
		t.Errorf("log counts %v", got)
	}
	h.now.Containers = []podstate.Container{{ID: "made", Name: "c", RestartCount: 1, State: podstate.StateExited}}
	if _, err := e.Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveContainer, Object: "made"}, ID: "made", Container: "c"})); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(logs)
	if _, err := os.Lstat(link); len(left) != 3 || !os.IsNotExist(err) {
		t.Errorf("left %v, link %v", left, err)
	}
	orphan := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveDirectories}})
	orphan.Pod = nil
	if err := os.Symlink(filepath.Join(logs, "0.log"), filepath.Join(cfg.ContainerLogsDir, "p_ns_c-old.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Do(t.Context(), t.Context(), orphan); err != nil {
		t.Fatal(err)
	}
	pods, _ := os.ReadDir(cfg.PodLogsDir)
	links, _ := os.ReadDir(cfg.ContainerLogsDir)
	if len(pods)+len(links) != 0 {
		t.Errorf("left %v and %v", pods, links)
	}
}

// TestThePodWhoseUIDEndsLikeAnothersKeepsItsLogs: a manifest may have a UID with underscores.
func TestThePodWhoseUIDEndsLikeAnothersKeepsItsLogs(t *testing.T) {
	cfg := Config{PodLogsDir: t.TempDir(), ContainerLogsDir: t.TempDir()}
	h := &host{}
	e := newExecutor(h, cfg)
	for _, name := range []string{"ns_p_u", "ns_other_not_u"} {
		dir := filepath.Join(cfg.PodLogsDir, name, "c")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, "0.log"), filepath.Join(cfg.ContainerLogsDir, strings.Split(name, "_")[1]+"_ns_c-1.log")); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(uid types.UID) (dirs, links int) {
		t.Helper()
		task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.RemoveDirectories}})
		task.Pod, task.UID = nil, uid
		if _, err := e.Do(t.Context(), t.Context(), task); err != nil {
			t.Fatal(err)
		}
		left, _ := os.ReadDir(cfg.PodLogsDir)
		linked, _ := os.ReadDir(cfg.ContainerLogsDir)
		return len(left), len(linked)
	}
	if dirs, links := gone("u"); dirs != 1 || links != 1 {
		t.Errorf("left are %d directories and %d links, want those of the other pod", dirs, links)
	}
	if dirs, links := gone("not_u"); dirs != 0 || links != 0 {
		t.Errorf("of the other pod %d directories and %d links are left", dirs, links)
	}
}
