package logrotate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a log directory and a runtime that writes to one log in it.
type world struct {
	t     testing.TB
	root  string
	path  string
	table *podcache.Table

	mu      sync.Mutex
	file    *os.File
	fail    error
	hang    bool
	reopens int
	line    int
	biggest int64 // the log's size whenever it was replaced
}

func newWorld(t testing.TB) *world {
	root := t.TempDir()
	w := &world{t: t, root: root, table: podcache.NewTable(1)}
	dir := filepath.Join(root, "ns_pod_uid", "c")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.path = filepath.Join(dir, "0.log")
	w.open()
	t.Cleanup(func() { _ = w.file.Close() })
	return w
}

func (w *world) open() {
	f, err := os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		w.t.Error(err)
	}
	w.file = f
}

func (w *world) runs(state podstate.ContainerState) {
	w.table.SetPod("uid", nil, []podstate.ContainerRow{{ID: "id", UID: "uid", Name: "c", State: state, StartedAt: time.Now(), LogPath: w.path}})
}

// write appends whole lines of a running number, about n bytes.
func (w *world) write(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; n > 0; n -= lineLength {
		if _, err := fmt.Fprintf(w.file, "%0*d\n", lineLength-1, w.line); err != nil {
			w.t.Error(err)
		}
		w.line++
	}
}

const lineLength = 100

// ReopenLog is what a runtime does.
func (w *world) ReopenLog(ctx context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reopens++
	if w.hang && id == "id" {
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		return ctx.Err()
	}
	if w.fail != nil {
		return w.fail
	}
	if id != "id" {
		return nil
	}
	if info, err := w.file.Stat(); err == nil {
		w.biggest = max(w.biggest, info.Size())
	}
	_ = w.file.Close()
	w.open()
	return nil
}

func (w *world) setFail(err error) {
	w.mu.Lock()
	w.fail = err
	w.mu.Unlock()
}

func (w *world) counts() (reopens int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reopens
}

func (w *world) names() []string {
	entries, err := os.ReadDir(filepath.Dir(w.path))
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// start runs a Rotator until the returned function is called.
func (w *world) start(cfg Config) (stop func()) {
	stop, _ = w.startRotator(cfg)
	return stop
}

func (w *world) startRotator(cfg Config) (stop func(), r *Rotator) {
	cfg.PodLogsDir = w.root
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	r = New(cfg, Deps{Runtime: w, Containers: w.table})
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}, r
}

// lines reads all that is kept of the log, oldest first, and fails when
// anything is missing in between.
func (w *world) lines() (first, last int) {
	w.t.Helper()
	names := w.names()
	slices.SortFunc(names, func(a, b string) int { // the current log is the newest
		if (a == "0.log") != (b == "0.log") {
			if a == "0.log" {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	first, last = -1, -1
	for _, name := range names {
		f, err := os.Open(filepath.Join(filepath.Dir(w.path), name))
		if err != nil {
			w.t.Fatal(err)
		}
		var in io.Reader = f
		if strings.HasSuffix(name, zipped) {
			if in, err = gzip.NewReader(bufio.NewReader(f)); err != nil {
				w.t.Fatalf("%s: %v", name, err)
			}
		}
		scan := bufio.NewScanner(in)
		for scan.Scan() {
			n := 0
			for _, c := range bytes.TrimLeft(scan.Bytes(), "0") {
				n = n*10 + int(c-'0')
			}
			if first < 0 {
				first, last = n, n-1
			}
			if n != last+1 {
				w.t.Fatalf("%s: line %d follows line %d", name, n, last)
			}
			last = n
		}
		if err := errors.Join(scan.Err(), f.Close()); err != nil {
			w.t.Fatal(err)
		}
	}
	return first, last
}

func TestAnEvenlyWrittenLogIsOverItsLimitByNoMoreThanASecondsBytes(t *testing.T) {
	for _, perSecond := range []int{10_000, 300_000, 2_000_000} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				const limit = 1_000_000
				stop := w.start(Config{MaxSize: limit, MaxFiles: 4})
				w.runs(podstate.StateRunning)
				seconds := 10 * max(1, limit/perSecond)
				for range seconds * 10 {
					w.write(perSecond / 10)
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				stop()
				if w.biggest < limit || w.biggest > limit+int64(perSecond)*12/10 {
					t.Errorf("the log had %d bytes with a limit of %d and %d bytes a second", w.biggest, limit, perSecond)
				}
				names := w.names()
				if len(names) != 4 {
					t.Errorf("files %v, want 4", names)
				}
				for i, name := range names {
					if want := i == 1 || i == 2; strings.HasSuffix(name, zipped) != want {
						t.Errorf("files %v: the current one and the newest rotated one, only, are not compressed", names)
					}
				}
				if _, last := w.lines(); last != w.line-1 {
					t.Errorf("the last line is %d, %d was written", last, w.line-1)
				}
			})
		})
	}
}

func TestABurstAfterSilenceIsOverTheLimitByAtMostOneIntervalsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.start(Config{MaxSize: 1000_000, Interval: 10 * time.Second})
		w.runs(podstate.StateRunning)
		time.Sleep(time.Hour + 3*time.Second)
		for range 40 {
			w.write(1000_000)
			time.Sleep(time.Second)
		}
		stop()
		if w.biggest > 1000_000+10*1000_000 {
			t.Errorf("the log had %d bytes", w.biggest)
		}
		if w.reopens < 20 {
			t.Errorf("rotated %d times in 40 seconds", w.reopens)
		}
	})
}

func TestALogGetsItsNameBackWhenTheRuntimeCannotOpenANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.setFail(errors.New("no"))
		w.write(5000)
		stop := w.start(Config{MaxSize: 1000})
		defer stop()
		w.runs(podstate.StateRunning)
		time.Sleep(time.Hour)
		if names := w.names(); !slices.Equal(names, []string{"0.log"}) {
			t.Fatalf("files %v", names)
		}
		if n := w.counts(); n < 10 || n > 25 {
			t.Errorf("tried %d times in an hour, want about every five minutes", n)
		}
		w.setFail(nil)
		time.Sleep(5 * time.Minute)
		if names := w.names(); len(names) != 2 {
			t.Errorf("files %v after the runtime works again", names)
		}
	})
}

func TestAMissingLogIsMadeByTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		stop := w.start(Config{MaxSize: 1000})
		defer stop()
		w.runs(podstate.StateRunning)
		time.Sleep(time.Second)
		if names := w.names(); w.counts() != 1 || len(names) != 1 {
			t.Errorf("%d calls, files %v", w.counts(), names)
		}
	})
}

func TestARuntimeThatWritesNoLogIsAskedOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		stop := w.start(Config{MaxSize: 1000, Interval: 10 * time.Second})
		defer stop()
		w.table.SetPod("uid", nil, []podstate.ContainerRow{{ID: "other", UID: "uid", State: podstate.StateRunning, LogPath: w.path}})
		time.Sleep(time.Minute + time.Second)
		if n := w.counts(); n != 7 {
			t.Errorf("asked %d times in a minute", n)
		}
	})
}

func TestOneHungReopenDoesNotHoldOtherLogsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.hang = true
		w.write(5000)
		other := filepath.Join(w.root, "ns_pod_uid", "d", "0.log")
		if err := os.MkdirAll(filepath.Dir(other), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(other, make([]byte, 5000), 0o640); err != nil {
			t.Fatal(err)
		}
		stop := w.start(Config{MaxSize: 1000, Workers: 1})
		defer stop()
		w.runs(podstate.StateRunning)
		synctest.Wait()
		w.table.SetPod("uid2", nil, []podstate.ContainerRow{{ID: "other", UID: "uid2", State: podstate.StateRunning, LogPath: other}})
		time.Sleep(2 * time.Second)
		if _, err := os.Lstat(other); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the other log was not rotated: %v", err)
		}
	})
}

func TestNothingIsDoneWithLogsThatAreNotRotated(t *testing.T) {
	cases := map[string]struct {
		state   podstate.ContainerState
		maxSize int64
		prepare func(t *testing.T, w *world)
	}{
		"a container that ended":  {state: podstate.StateExited, maxSize: 1000},
		"rotation is off":         {state: podstate.StateRunning, maxSize: 0},
		"a negative size":         {state: podstate.StateRunning, maxSize: -1},
		"a log that is not full":  {state: podstate.StateRunning, maxSize: 1 << 30},
		"a log that is elsewhere": {state: podstate.StateRunning, maxSize: 1000, prepare: func(_ *testing.T, w *world) { w.root = filepath.Join(w.root, "below") }},
		"a directory is a link": {state: podstate.StateRunning, maxSize: 1000, prepare: func(t *testing.T, w *world) {
			link := filepath.Join(w.root, "ns_link_uid")
			if err := os.Symlink(filepath.Join(w.root, "ns_pod_uid"), link); err != nil {
				t.Fatal(err)
			}
			w.path = filepath.Join(link, "c", "0.log")
		}},
		"the log is a link": {state: podstate.StateRunning, maxSize: 1, prepare: func(t *testing.T, w *world) {
			target := filepath.Join(filepath.Dir(w.path), "other")
			if err := errors.Join(os.Rename(w.path, target), os.Symlink("other", w.path)); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.write(5000)
				if c.prepare != nil {
					c.prepare(t, w)
				}
				before := w.names()
				stop := w.start(Config{MaxSize: c.maxSize})
				defer stop()
				w.runs(c.state)
				time.Sleep(time.Hour)
				if names := w.names(); !slices.Equal(names, before) || w.counts() != 0 {
					t.Errorf("files %v, before %v; the runtime was asked %d times", names, before, w.counts())
				}
			})
		})
	}
}

func TestAContainerThatWritesAsFastAsItCanKeepsItsLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds of real time")
	}
	w := newWorld(t)
	const limit = 1 << 20
	interval := 3 * time.Second
	stop := w.start(Config{MaxSize: limit, MaxFiles: 3, Interval: interval})
	w.runs(podstate.StateRunning)
	began := time.Now()
	// What was written by when, for what is written in an interval: a busy machine
	// lets this write now nothing, now much.
	type moment struct {
		at    time.Duration
		bytes int64
	}
	written, oldest, perInterval := []moment{{}}, 0, int64(0)
	for took := time.Duration(0); (took < 4*time.Second || w.counts() < 2) && took < 2*time.Minute && w.line < 8_000_000; {
		w.write(64 << 10)
		took = time.Since(began)
		now := moment{took, int64(w.line) * lineLength}
		for oldest < len(written)-1 && took-written[oldest].at > interval {
			oldest++
		}
		written = append(written, now)
		perInterval = max(perInterval, now.bytes-written[oldest].bytes)
	}
	took := time.Since(began)
	stop()
	t.Logf("%d MB in %v, rotated %d times, the biggest file was %d MB", w.line*lineLength/1e6, took, w.reopens, w.biggest/1e6)
	if w.reopens < 2 {
		t.Errorf("rotated %d times in %v", w.reopens, took)
	}
	if w.biggest > limit+perInterval {
		t.Errorf("the log had %d bytes, with %d bytes in an interval", w.biggest, perInterval)
	}
	if names := w.names(); len(names) > 3 {
		t.Errorf("files %v", names)
	}
	if _, last := w.lines(); last != w.line-1 {
		t.Errorf("the last line is %d, %d was written", last, w.line-1)
	}
}
