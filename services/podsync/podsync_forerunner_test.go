package podsync

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// The manifest of an apiserver's pod is changed while podsync is down: what runs
// of the old one has the host's port, and nobody can ask the apiserver.
func TestAStaticPodWaitsForTheOneThatItsManifestWasBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLives(t)
		defer l.rt.Close()
		api := fakeapiserver.New(fakeapiserver.Config{})
		defer api.Close()
		api.Partition(fakeapiserver.Refuse)
		life := func(text string, work func(s *Service)) {
			t.Helper()
			l.write(text)
			l.live(func(_ *Config, d *Deps) { d.Client = api.Client() }, work)
		}
		running := func() (n int) {
			for _, c := range l.rt.Snapshot().Containers {
				if c.State == fakecri.Running {
					n++
				}
			}
			return n
		}
		life(manifest, func(s *Service) {
			time.Sleep(10 * time.Second)
			if !s.ready("hello-n1") {
				t.Fatal("the first one does not run")
			}
		})
		life(strings.Replace(manifest, "{name: hello}", "{name: hello, labels: {version: two}}", 1), func(s *Service) {
			most := 0
			for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
				synctest.Wait()
				most = max(most, running())
			}
			if most != 1 || running() != 1 || !s.ready("hello-n1") {
				t.Errorf("%d containers ran at once, %d run, ready %v", most, running(), s.ready("hello-n1"))
			}
		})
	})
}
