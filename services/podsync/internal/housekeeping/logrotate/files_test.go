package logrotate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

func TestOldFilesOfALogAreCleaned(t *testing.T) {
	const a, b, c = "0.log.20260101-000000", "0.log.20260102-000000", "0.log.20260103-000000"
	cases := map[string]struct {
		there   []string
		keep    int
		working string
		kept    []string
		after   []string
	}{
		"the oldest go":             {there: []string{a + ".gz", b, c}, keep: 2, kept: []string{b, c}, after: []string{b, c}},
		"what is half done goes":    {there: []string{a, a + ".tmp"}, keep: 3, kept: []string{a}, after: []string{a}},
		"unless it is at work":      {there: []string{a, a + ".tmp"}, keep: 3, working: a, kept: []string{a}, after: []string{a, a + ".tmp"}},
		"twins go":                  {there: []string{a, a + ".gz", b}, keep: 3, kept: []string{a + ".gz", b}, after: []string{a + ".gz", b}},
		"none are kept":             {there: []string{a + ".gz", b}, keep: 0, after: nil},
		"foreign files stay":        {there: []string{"0.log", "0.log.old", "1.log." + a[6:], "0.log.20260101-000000.gz.bak", a}, keep: 0, after: []string{"0.log", "0.log.20260101-000000.gz.bak", "0.log.old", "1.log." + a[6:]}},
		"a negative keep is none":   {there: []string{a}, keep: -1},
		"another restart's log too": {there: []string{"10.log." + a[6:], a}, keep: 0, after: []string{"10.log." + a[6:]}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			for _, f := range c.there {
				if err := os.WriteFile(filepath.Join(path, f), nil, 0o640); err != nil {
					t.Fatal(err)
				}
			}
			dir, err := os.OpenRoot(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = dir.Close() }()
			kept, err := clean(dir, "0.log", c.keep, func(name string) bool { return name == c.working })
			if err != nil || !slices.Equal(kept, c.kept) {
				t.Errorf("kept %v, %v; want %v", kept, err, c.kept)
			}
			var after []string
			entries, _ := os.ReadDir(path)
			for _, e := range entries {
				after = append(after, e.Name())
			}
			if !slices.Equal(after, c.after) {
				t.Errorf("left %v, want %v", after, c.after)
			}
		})
	}
}

func TestTheNextLookFollowsFromRateAndWhatIsLeft(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type look struct {
		after time.Duration // of the start
		size  int64
	}
	cases := map[string]struct {
		looks []look
		left  int64
		want  time.Duration
	}{
		"an old log that does not grow":    {looks: []look{{time.Hour, 0}}, left: 1000, want: forever},
		"a container just started":         {looks: []look{{0, 0}}, left: 1000, want: time.Second},
		"a container four seconds old":     {looks: []look{{4 * time.Second, 0}}, left: 1000, want: 4 * time.Second},
		"a known rate":                     {looks: []look{{time.Hour, 0}, {time.Hour + time.Second, 1000}}, left: 4000, want: 3 * time.Second},
		"a rate that has fallen is halved": {looks: []look{{time.Hour, 0}, {time.Hour + time.Second, 1000}, {time.Hour + 2*time.Second, 1000}}, left: 4000, want: 6 * time.Second},
		"the rate since the start":         {looks: []look{{100 * time.Second, 100_000}}, left: 4000, want: 3 * time.Second},
		"a log that shrank does not grow":  {looks: []look{{time.Hour, 1000}, {time.Hour + time.Second, 0}}, left: 4000, want: forever},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var g growth
			now := start
			for _, l := range c.looks {
				now = start.Add(l.after)
				g.saw(l.size, now, start)
			}
			if got := g.wait(c.left, now, start); got != c.want {
				t.Errorf("waits %v, want %v; %+v", got, c.want, g)
			}
		})
	}
}

func TestLinksToLogsThatAreGoneAreRemoved(t *testing.T) {
	logs, links := t.TempDir(), t.TempDir()
	r := New(Config{PodLogsDir: logs, LinksDir: links}, Deps{})
	there, runs := filepath.Join(logs, "there.log"), filepath.Join(logs, "runs.log")
	err := errors.Join(
		os.WriteFile(there, nil, 0o640),
		os.Symlink(there, filepath.Join(links, "a-there")),
		os.Symlink(runs, filepath.Join(links, "b-runs")),
		os.Symlink(filepath.Join(logs, "gone.log"), filepath.Join(links, "c-gone")),
		os.Symlink("/elsewhere/gone.log", filepath.Join(links, "d-foreign")),
		os.WriteFile(filepath.Join(links, "e-file"), nil, 0o640),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.setRunning(runs, true)
	if n, err := r.sweep(time.Now()); n != 0 || err != nil {
		t.Errorf("removed %d young links, %v", n, err)
	}
	if n, err := r.sweep(time.Now().Add(youngest + time.Second)); n != 1 || err != nil {
		t.Errorf("removed %d links, %v; want 1", n, err)
	}
	if _, err := os.Lstat(filepath.Join(links, "c-gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link to nothing is there: %v", err)
	}
}

// podsync may be killed between the start of a container and its link.
func TestALogWithoutALinkGetsOne(t *testing.T) {
	for _, tc := range []struct {
		name  string
		state podstate.ContainerState
		gone  bool
		want  bool
	}{
		{"it runs", podstate.StateRunning, false, true},
		{"it has ended", podstate.StateExited, false, true},
		{"it was only made", podstate.StateCreated, false, false},
		{"its log is gone", podstate.StateExited, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, links := newWorld(t), t.TempDir()
			if tc.gone {
				if err := os.Remove(w.path); err != nil {
					t.Fatal(err)
				}
			}
			w.runs(tc.state)
			r := New(Config{PodLogsDir: w.root, LinksDir: links}, Deps{Containers: w.table})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			synctest.Wait()
			cancel()
			ended := <-done
			target, err := os.Readlink(filepath.Join(links, podcache.LogLink("", "", "c", "id")))
			if (err == nil) != tc.want || tc.want && target != w.path || ended != nil {
				t.Errorf("%s: link to %q, %v", tc.name, target, err)
			}
		})
	}
}

func TestACompressionStopsWhenItsFileIsRemoved(t *testing.T) {
	path := t.TempDir()
	name := filepath.Join(path, "f")
	if err := os.WriteFile(name, make([]byte, 3*portion), 0o640); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if removed(f) {
		t.Error("a file that is there counts as removed")
	}
	if err := squeeze(t.Context(), remover{name}, f); !errors.Is(err, errGone) {
		t.Errorf("ended with %v", err)
	}
}

// remover removes a file when something is written.
type remover struct{ name string }

func (r remover) Write(p []byte) (int, error) {
	_ = os.Remove(r.name)
	return len(p), nil
}

func TestALogMustLieBelowTheLogDirectory(t *testing.T) {
	r := New(Config{PodLogsDir: "/var/log/pods/"}, Deps{})
	for path, ok := range map[string]bool{
		"/var/log/pods/a/b/0.log": true, "/var/log/pods/a/../../x": false, "/var/log/pods": false,
		"/var/log/podsa/b": false, "": false, "relative/0.log": false,
	} {
		if _, err := r.locate(path); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
		if _, logged := r.logged(podcache.Entry{Container: &podstate.ContainerRow{LogPath: path}}); logged {
			t.Errorf("%q: a container that does not run is rotated", path)
		}
	}
}
