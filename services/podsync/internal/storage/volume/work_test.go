package volume

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// TestAVolumeThatTakesLongerThanASetUpIsFinishedAllTheSame: each Setup has two minutes,
// and a volume of millions of files takes more; begun anew each time it would never end.
func TestAVolumeThatTakesLongerThanASetUpIsFinishedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set.state("uid-1")
		began := 0
		slow := func(ctx context.Context, c *chown) error {
			began++
			c.files.Store(7)
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		}
		try := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			return f.set.work(ctx, "uid-1", "v pv", slow)
		}
		for range 2 {
			if err := try(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "7 of its files have been given") {
				t.Fatalf("%v", err)
			}
		}
		if uid := <-f.changed; uid != "uid-1" {
			t.Errorf("told of %s", uid)
		}
		if err := try(); err != nil || began != 1 {
			t.Errorf("%v, begun %d times", err, began)
		}
	})
}

// TestAVolumeOfADriverInAPodsSpecIsFinishedToo: its driver may take as long, and its files
// are given to the pod's group, which begun anew each time would never end.
func TestAVolumeOfADriverInAPodsSpecIsFinishedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDriver{hang: make(chan struct{})}
		f := withCSI(t, d)
		pod := podWith(csiVolume("v", "a.example"))
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			if err := f.set.Setup(ctx, pod); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it is still being set up") {
				t.Errorf("%v", err)
			}
			cancel()
		}
		close(d.hang)
		if uid := <-f.changed; uid != "uid-1" {
			t.Errorf("told of %s", uid)
		}
		if err := f.set.Setup(t.Context(), pod); err != nil || len(d.calls) != 1 {
			t.Errorf("%v, asked for %q", err, d.calls)
		}
		if path, is := f.set.HostPath("uid-1", "v"); !is || path == "" {
			t.Errorf("it lies at %q", path)
		}
	})
}

// TestAVolumeOfADriverThatHangsStandsIfAPreviousRunHasSetItUp: its pod's containers may
// start again.
func TestAVolumeOfADriverThatHangsStandsIfAPreviousRunHasSetItUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := withCSI(t, &fakeDriver{hang: make(chan struct{})})
		at := filepath.Join(f.set.volumeDir("uid-1", pluginCSI, "v"), csiMount)
		if err := makeDir(at, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := f.mounts.Bind("csi", at); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := f.set.Setup(ctx, podWith(csiVolume("v", "a.example")))
		if failed := (podstate.VolumeErrors)(nil); !errors.As(err, &failed) || !slices.Equal(failed.Standing(), []string{"v"}) {
			t.Errorf("%v", err)
		}
		if path, _ := f.set.HostPath("uid-1", "v"); path != at {
			t.Errorf("it lies at %q", path)
		}
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			t.Error(err)
		}
	})
}

func TestTeardownEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set.state("uid-1")
		ended := make(chan error, 1)
		go func() {
			ended <- f.set.work(t.Context(), "uid-1", "v pv", func(ctx context.Context, _ *chown) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, errTornDown) {
			t.Errorf("%v", err)
		}
	})
}

func TestTeardownDoesNotWaitForEverForAVolumeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set.state("uid-1")
		hung := make(chan struct{})
		go func() {
			_ = f.set.work(t.Context(), "uid-1", "v pv", func(context.Context, *chown) error { <-hung; return nil })
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.set.Teardown(ctx, "uid-1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(hung)
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			t.Error(err)
		}
	})
}
