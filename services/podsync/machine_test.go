package podsync

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestASocketForThePodsAPIThatCannotBeMadeEndsNothingAndIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		said := &healths{said: map[string]string{}}
		startInClusterWith(t, fakecri.New(fakecri.Config{}), fakeapiserver.New(fakeapiserver.Config{}), func(c *Config, d *Deps) {
			c.PodsAPISocket, d.Health = filepath.Join(file, "pods-api.sock"), said
		}, func(*Service) {})
		time.Sleep(time.Minute)
		if got := said.get("pods API"); !strings.Contains(got, file) || !strings.Contains(got, "tried again") {
			t.Errorf("health says %q", got)
		}
		if got := said.get("runtime"); got != "ready" {
			t.Errorf("the runtime is %q although only the socket is missing", got)
		}
	})
}

func TestAProcessIsBegunApartOnlyByItsFirstArgument(t *testing.T) {
	for _, args := range [][]string{nil, {"podsync"}, {"podsync", "--apart"}} {
		if _, is := Apart(args, io.Discard); is {
			t.Errorf("%q is a call", args)
		}
	}
	for _, call := range []string{"unmount", "detach", "fullness", "subpath"} {
		var out strings.Builder
		if code, is := Apart([]string{"--apart", call}, &out); !is || code != 0 || !strings.Contains(out.String(), call+" takes ") {
			t.Errorf("%s: %v, %d, %s", call, is, code, out.String())
		}
	}
}

// Of a file of allocations that was damaged all that can be done is done at the
// start: nobody waits for it until the next one.
func TestADamagedFileOfAllocationsIsSaidAndNotWaitedForAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, said := health.NewTracker(logr.Discard()), ""
		tracker.OnTransition(func(d health.Dependency) {
			if d.Name == "allocations" && !d.Ready {
				said = d.Message
			}
		})
		startInClusterWith(t, fakecri.New(fakecri.Config{}), fakeapiserver.New(fakeapiserver.Config{}), func(c *Config, d *Deps) {
			d.Health = tracker
			if err := os.MkdirAll(filepath.Join(c.RootDir, "polylet"), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(c.RootDir, "polylet", "allocations.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, func(*Service) {})
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(said, "damaged") {
			t.Errorf("said was %q", said)
		}
		if _, missing := tracker.Ready(); slices.Contains(missing, "allocations") {
			t.Errorf("after a minute it waits for %v", missing)
		}
	})
}

func TestADirectoryForPluginsThatCannotBeMadeEndsNothingAndIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		said := &healths{said: map[string]string{}}
		startInClusterWith(t, fakecri.New(fakecri.Config{}), fakeapiserver.New(fakeapiserver.Config{}), func(c *Config, d *Deps) {
			c.PluginsDir, d.Health = filepath.Join(file, "plugins_registry"), said
		}, func(*Service) {})
		time.Sleep(time.Minute)
		if got := said.get("plugin registration"); !strings.Contains(got, file) {
			t.Errorf("health says %q", got)
		}
		if got := said.get("runtime"); got != "ready" {
			t.Errorf("the runtime is %q although only the plugins' directory is missing", got)
		}
	})
}
