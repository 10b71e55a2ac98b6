package podsync

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// A pod whose manifest somebody has broken goes on over a restart, and nobody looks
// after it: whoever asks is told.
func TestAStaticPodInDoubtIsNamedUntilItsManifestIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLives(t)
		defer l.rt.Close()
		said := &healths{said: map[string]string{}}
		life := func(work func(s *Service)) {
			t.Helper()
			l.live(func(c *Config, d *Deps) { c.Node.Standalone, d.Health = true, said }, func(s *Service) {
				time.Sleep(30 * time.Second)
				work(s)
			})
		}
		l.write(manifest)
		life(func(s *Service) {
			if !s.ready("hello-n1") || said.get("static pods in doubt") != "" {
				t.Fatalf("the pod does not run, or is in doubt: %q", said.get("static pods in doubt"))
			}
		})
		l.write(manifest[:len(manifest)/2])
		life(func(s *Service) {
			ask := func() string {
				_, err := s.server.ExplainPod(t.Context(), &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: "default", Name: "hello-n1"}})
				if err == nil {
					return ""
				}
				return err.Error()
			}
			const text = "no manifest that can be read is that of default/hello-n1: what runs goes on, but nobody probes or restarts it"
			if got := said.get("static pods in doubt"); !strings.HasPrefix(got, text) {
				t.Errorf("in doubt: %q, want %q", got, text)
			}
			if got := ask(); !strings.Contains(got, `static pod "hello-n1" goes on, but nobody probes or restarts it`) {
				t.Errorf("explain says %q", got)
			}
			told := false
			for _, e := range s.events.Recent() {
				told = told || e.Reason == "StaticPodInDoubt" && strings.HasPrefix(e.Message, text)
			}
			if !told {
				t.Errorf("no event tells of it: %+v", s.events.Recent())
			}
			l.write(manifest)
			time.Sleep(time.Minute)
			if got := said.get("static pods in doubt") + ask(); got != "ready" || !s.ready("hello-n1") || len(l.rt.Snapshot().Containers) != 1 {
				t.Errorf("afterwards it says %q; ready %v, containers %d", got, s.ready("hello-n1"), len(l.rt.Snapshot().Containers))
			}
		})
	})
}
