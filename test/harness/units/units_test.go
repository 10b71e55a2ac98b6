package units

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/test/harness/process"
)

func serve(t *testing.T, script string) (ask func(...string) Answer, runs func() int) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	unit := &Unit{Process: process.New(process.Config{Name: "kubelet", Path: "/bin/sh", Args: []string{"-c", "echo runs; " + script}, LogFile: log})}
	u, err := Serve(filepath.Join(dir, "units"), map[string]*Unit{"kubelet": unit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return func(args ...string) Answer {
			t.Helper()
			answer, err := Ask(filepath.Join(dir, "units"), args)
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}, func() int {
			data, err := os.ReadFile(log)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return strings.Count(string(data), "runs\n")
		}
}

func TestAUnitIsStartedStoppedAndAskedFor(t *testing.T) {
	ask, runs := serve(t, "exec sleep 1000")
	if a := ask("is-active", "kubelet"); a.Code == 0 || a.Output != "inactive\n" {
		t.Errorf("before its start: %+v", a)
	}
	for range 2 { // the second start changes nothing
		if a := ask("start", "kubelet.service"); a.Code != 0 {
			t.Errorf("start: %+v", a)
		}
	}
	eventually.True(t, "it was never started", func() bool { return runs() == 1 })
	if a := ask("is-active", "kubelet"); a != (Answer{Output: "active\n"}) {
		t.Errorf("while it runs: %+v", a)
	}
	if a := ask("status", "kubelet"); a.Code != 0 || !strings.Contains(a.Output, "Loaded: loaded") {
		t.Errorf("status: %+v", a)
	}
	ask("restart", "kubelet")
	eventually.True(t, "it was not restarted", func() bool { return runs() == 2 })
	ask("stop", "kubelet")
	if a := ask("is-active", "kubelet"); a.Code == 0 || runs() != 2 {
		t.Errorf("after its stop: %+v, %d runs", a, runs())
	}
}

func TestAUnitThatEndsIsStartedAgain(t *testing.T) {
	ask, runs := serve(t, "exit 1")
	ask("start", "kubelet")
	eventually.True(t, "it is not started again", func() bool { return runs() == 2 })
	if a := ask("is-active", "kubelet"); a.Output != "active\n" {
		t.Errorf("between two starts: %+v", a)
	}
}

func TestAUnitThatIsNotThereIsSaidSo(t *testing.T) {
	ask, _ := serve(t, "exit")
	if a := ask("status", "firewalld"); !strings.Contains(a.Output, "could not be found") || a.Code == 0 {
		t.Errorf("status: %+v", a)
	}
	if a := ask("is-active", "systemd-resolved"); a.Output != "inactive\n" {
		t.Errorf("is-active: %+v", a)
	}
	if a := ask("mask", "kubelet"); a.Code == 0 {
		t.Errorf("an unknown verb: %+v", a)
	}
}
