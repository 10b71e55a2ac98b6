package podsync

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

// The node of a control plane boots: the apiserver is one of its static pods.
func TestStaticPodsStartAtOnceWhileTheApiserverIsAway(t *testing.T) {
	for name, mode := range map[string]fakeapiserver.Partition{"it refuses": fakeapiserver.Refuse, "packets vanish": fakeapiserver.Blackhole} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "hello.yaml"), []byte(manifest), 0o600); err != nil {
					t.Fatal(err)
				}
				rt := fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}, Scripts: map[string]fakecri.Script{"registry.local/hello:1": {Runs: []fakecri.Run{{For: -1}}}}})
				api := fakeapiserver.New(fakeapiserver.Config{})
				began := time.Now()
				s := startInClusterWith(t, rt, api, func(c *Config, d *Deps) {
					c.StaticPods.Path, c.Cgroups.PerQOS = dir, true
					// They are made when the runtime is ready, but not the host's.
					d.makeCgroups = func(cgroup.Config) (cgroup.Manager, error) { return cgroup.Off{}, nil }
				}, func(*Service) { api.Partition(mode) })
				for !s.ready("hello-n1") && time.Since(began) < time.Minute {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("it was ready after %v", took)
				}
				api.Heal()
				time.Sleep(time.Minute)
				if api.Pod("default", "hello-n1") == nil || s.node.Object() == nil {
					t.Error("the apiserver is back, and has no mirror, or podsync no Node")
				}
			})
		})
	}
}

// ready says whether the pod of this name is.
func (s *Service) ready(name string) bool {
	for _, p := range s.pods.List() {
		for _, c := range p.Status.Conditions {
			if p.Pod.Name == name && c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				return true
			}
		}
	}
	return false
}
