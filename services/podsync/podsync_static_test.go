package podsync

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// manual tells of removed files when the test says so.
type manual struct {
	quiet
	gone chan string
}

func (m manual) NotifyRemoved(ctx context.Context, _ string, changed func(), removed func(string)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case file := <-m.gone:
			removed(file)
			changed()
		}
	}
}

// logging lets the containers of a runtime have logs, as real ones have: nobody
// else knows afterwards how often they were started.
func logging(t *testing.T, s *Service, count string) {
	t.Helper()
	pods := s.pods.List()
	if len(pods) != 1 {
		t.Fatalf("%d pods", len(pods))
	}
	log := filepath.Join(s.cfg.Logs.Dir, "default_hello-n1_"+string(pods[0].Pod.UID), "c", count+".log")
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAStaticPodWhoseFileIsRemovedAndPutBackIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "hello.yaml")
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		rt := fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}, Scripts: map[string]fakecri.Script{
			"registry.local/hello:1": {Runs: []fakecri.Run{{For: -1}}, OnTerm: fakecri.Term{After: time.Second}},
		}})
		api := fakeapiserver.New(fakeapiserver.Config{})
		told := make(chan string)
		s := startInClusterWith(t, rt, api, func(c *Config, d *Deps) {
			c.StaticPods.Path = dir
			d.Notifier = manual{gone: told}
		}, func(*Service) {})
		status := func() v1.PodStatus {
			t.Helper()
			pod := api.Pod("default", "hello-n1")
			if pod == nil || len(pod.Status.ContainerStatuses) != 1 || pod.Status.Phase != v1.PodRunning {
				t.Fatalf("the mirror is %+v", pod)
			}
			return pod.Status
		}
		time.Sleep(10 * time.Second)
		logging(t, s, "0")
		first := status().ContainerStatuses[0]
		told <- file
		time.Sleep(time.Minute)
		if now := status().ContainerStatuses[0]; now.RestartCount != 1 || now.ContainerID == first.ContainerID || now.State.Running == nil || !s.ready("hello-n1") {
			t.Errorf("after it was put back the container is %+v", now)
		}
		logging(t, s, "1")
		told <- file
		time.Sleep(time.Minute)
		if now := status().ContainerStatuses[0]; now.RestartCount != 2 {
			t.Errorf("after two times the container is %+v", now)
		}
		logs, err := filepath.Glob(filepath.Join(s.cfg.Logs.Dir, "*", "c", "*"))
		if err != nil || len(logs) != 1 || filepath.Base(logs[0]) != "1.log" {
			t.Errorf("logs %q, %v; want the last one of the life before", logs, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		told <- file
		time.Sleep(time.Minute)
		if left, err := os.ReadDir(s.cfg.Logs.Dir); err != nil || len(left) > 0 || len(s.pods.List()) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	})
}

func TestThatAMirrorCannotBeMadeIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "hello.yaml"), []byte(manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		rt := fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}})
		var refusing atomic.Bool
		refusing.Store(true)
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if q.Verb == "create" && q.Resource == "pods" && refusing.Load() {
				return fakeapiserver.Fault{Status: 403}
			}
			return fakeapiserver.Fault{}
		}})
		told := &healths{said: map[string]string{}}
		startInClusterWith(t, rt, api, func(c *Config, d *Deps) { c.StaticPods.Path, d.Health = dir, told }, func(*Service) {})
		time.Sleep(time.Minute)
		if said := told.get("mirror pods"); !strings.Contains(said, "make the mirror of static pod default/hello-n1") {
			t.Errorf("mirror pods: %q", said)
		}
		refusing.Store(false)
		time.Sleep(time.Minute)
		if said := told.get("mirror pods"); said != "ready" {
			t.Errorf("mirror pods: %q", said)
		}
	})
}
