package checkpoint

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/health"
)

// running lets a Keeper of one number run while do does what it does, until what
// was asked to be written is.
func running(t *testing.T, cfg Config, number *int, do func(*Keeper[int])) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := New(cfg, func() int { return *number })
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	do(k)
	synctest.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func wrong(h *health.Tracker) (messages []string) {
	for _, d := range h.Dependencies() {
		if !d.Ready {
			messages = append(messages, d.Name+": "+d.Message)
		}
	}
	return messages
}

func TestWhatWasKeptIsThereInTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{File: filepath.Join(t.TempDir(), "polylet", "n.json"), What: "numbers"}
		number := 7
		if _, ok := New(cfg, func() int { return 0 }).Load(logr.Discard()); ok {
			t.Error("there is something before anything was kept")
		}
		running(t, cfg, &number, func(k *Keeper[int]) { k.Changed(); k.Changed() })
		if got, ok := New(cfg, func() int { return 0 }).Load(logr.Discard()); !ok || got != 7 {
			t.Errorf("got %d, %v", got, ok)
		}
	})
}

func TestWithoutAFileNothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		number := 7
		told := health.NewTracker(logr.Discard())
		running(t, Config{What: "numbers", Health: told}, &number, func(k *Keeper[int]) {
			if _, ok := k.Load(logr.Discard()); ok {
				t.Error("something is kept nowhere")
			}
			k.Changed()
		})
		if len(wrong(told)) != 0 {
			t.Errorf("told %v", wrong(told))
		}
	})
}

func TestADamagedFileIsToldAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "n.json")
		if err := os.WriteFile(file, []byte("{half of"), 0o600); err != nil {
			t.Fatal(err)
		}
		told := health.NewTracker(logr.Discard())
		cfg := Config{File: file, What: "numbers", Health: told}
		number := 8
		running(t, cfg, &number, func(k *Keeper[int]) {
			if _, ok := k.Load(logr.Discard()); ok || !strings.Contains(strings.Join(wrong(told), ""), "numbers: ") {
				t.Errorf("read: %v, told %v", ok, wrong(told))
			}
		})
		if got, ok := New(cfg, func() int { return 0 }).Load(logr.Discard()); !ok || got != 8 || len(wrong(told)) != 0 {
			t.Errorf("got %d, %v; told %v", got, ok, wrong(told))
		}
	})
}

func TestWhatCannotBeWrittenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "in the way")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		told := health.NewTracker(logr.Discard())
		cfg := Config{File: filepath.Join(dir, "n.json"), What: "numbers", Health: told}
		number := 9
		running(t, cfg, &number, func(k *Keeper[int]) {
			k.Changed()
			synctest.Wait()
			if got := strings.Join(wrong(told), ""); !strings.Contains(got, "numbers: ") || !strings.Contains(got, "check that the disk") {
				t.Errorf("told %q", got)
			}
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
			time.Sleep(again + time.Second)
		})
		if got, ok := New(cfg, func() int { return 0 }).Load(logr.Discard()); !ok || got != 9 || len(wrong(told)) != 0 {
			t.Errorf("got %d, %v; told %v", got, ok, wrong(told))
		}
	})
}
