package evict

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/eviction"
)

func TestTheNewestDecisionsAreKeptAndTheSameOnceMoreIsCounted(t *testing.T) {
	l := newWorld(t, threshold.Settings{}, Config{}).loop
	for i := range 2 * kept {
		for range 3 {
			l.note(context.Background(), Decision{Shortage: Shortage{Signal: fmt.Sprint(i)}, Outcome: Held, Why: strings.Repeat("x", 2*longWhy)})
		}
	}
	got := l.View().Decisions
	if len(got) != kept || got[0].Shortage.Signal != fmt.Sprint(kept) || got[kept-1].Count != 3 || len(got[0].Why) > longWhy+8 {
		t.Errorf("%d, the first of %s, the last %d times", len(got), got[0].Shortage.Signal, got[kept-1].Count)
	}
}

// As when something that is no pod has filled the disk: it is nodefs, imagefs and
// containerfs, and nobody can go for any of them.
func TestShortagesThatAreDecidedAboutInTurnTakeNoOthersPlace(t *testing.T) {
	l := newWorld(t, threshold.Settings{}, Config{}).loop
	l.note(context.Background(), Decision{Shortage: Shortage{Signal: "memory.available"}, Outcome: Evicted, Chosen: Pod{Name: "hog"}})
	signals := []string{"imagefs.available", "nodefs.available", "containerfs.available"}
	for range kept {
		for _, signal := range signals {
			l.note(context.Background(), Decision{Shortage: Shortage{Signal: signal}, Outcome: Nobody})
		}
	}
	l.note(context.Background(), Decision{Shortage: Shortage{Signal: "nodefs.available"}, Outcome: Evicted, Chosen: Pod{Name: "other"}})
	l.note(context.Background(), Decision{Shortage: Shortage{Signal: "nodefs.available"}, Outcome: Nobody})
	var got []string
	for _, d := range l.View().Decisions {
		got = append(got, fmt.Sprint(d.Shortage.Signal, " ", d.Outcome, " ", d.Count))
	}
	want := []string{
		"memory.available evicted 1", "imagefs.available nobody 100", "nodefs.available nobody 100", "containerfs.available nobody 100",
		"nodefs.available evicted 1", "nodefs.available nobody 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhatIsKeptOfOthersWordsIsBoundedAndCanBeTold(t *testing.T) {
	l := newWorld(t, threshold.Settings{}, Config{}).loop
	words := "x" + strings.Repeat("é", 100*longWhy)
	l.note(context.Background(), Decision{Outcome: Refused, Why: words, Reclaimed: &ReclaimResult{Error: words}})
	d := l.View().Decisions[0]
	for _, text := range []string{d.Why, d.Reclaimed.Error} {
		if len(text) > longWhy+8 || !utf8.ValidString(text) {
			t.Errorf("%d bytes, %q at the end", len(text), text[len(text)-8:])
		}
	}
}

func TestNotMoreCandidatesAreListedThanAnybodyReads(t *testing.T) {
	var d Decision
	d.consider(make30())
	if len(d.Candidates) != considered || d.More != 30-considered {
		t.Errorf("%d and %d more", len(d.Candidates), d.More)
	}
}

func make30() []eviction.Candidate {
	out := make([]eviction.Candidate, 30)
	for i := range out {
		out[i].Pod = &v1.Pod{}
	}
	return out
}

func TestWhatIsShortIsShownFirstToBeActedUponFirst(t *testing.T) {
	in(t, threshold.Settings{Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}}, Config{}, func(w *world) {
		w.otherMemory, w.otherDisk = 950*mi, 950*mi
		w.signals()
		got := w.loop.View()
		if len(got.Conditions) != 2 || len(got.Shortages) != 2 || got.Shortages[0].Signal != "memory.available" || got.Shortages[0].Available != "50Mi" || got.Signals.IsZero() || time.Since(got.Shortages[0].Since) > time.Second {
			t.Errorf("%+v", got)
		}
	})
}

// Its condition is there all the while, and new pods are refused.
func TestAShortageWhoseGracePeriodRunsIsShownWithItsEnd(t *testing.T) {
	settings := threshold.Settings{
		Soft:      map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"},
		SoftGrace: map[string]string{"memory.available": "30m", "nodefs.available": "20m"},
	}
	in(t, settings, Config{}, func(w *world) {
		w.otherMemory, w.otherDisk = 950*mi, 950*mi
		w.signals()
		start := time.Now()
		w.pass(10 * time.Minute)
		got := w.loop.View()
		if len(got.Conditions) != 2 || len(got.Shortages) > 0 || len(got.Waits) != 2 {
			t.Fatalf("%+v", got)
		}
		for i, want := range []struct {
			signal string
			grace  time.Duration
		}{{"nodefs.available", 20 * time.Minute}, {"memory.available", 30 * time.Minute}} {
			if s := got.Waits[i]; s.Signal != want.signal || s.Due.Sub(s.Since) != want.grace || s.Since.Sub(start).Abs() > time.Second {
				t.Errorf("%+v, want %s with %s", s, want.signal, want.grace)
			}
		}
		w.pass(25 * time.Minute)
		if got = w.loop.View(); len(got.Waits) > 0 || len(got.Shortages) != 2 || !got.Shortages[0].Due.IsZero() {
			t.Errorf("%+v", got)
		}
	})
}

func TestWhatAPodUsesOfItsLimitIsNotLoggedAsAvailable(t *testing.T) {
	for signal, want := range map[string]string{"memory.available": `"available"="150Mi"`, "ephemeralpodfs.limit": `"used"="150Mi"`, "emptydirfs.limit": `"used"="150Mi"`, "ephemeralcontainerfs.limit": `"used"="150Mi"`} {
		var said []string
		ctx := klog.NewContext(context.Background(), funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
		(&Loop{}).note(ctx, Decision{Shortage: Shortage{Signal: signal, Available: "150Mi"}, Outcome: Evicted})
		if len(said) != 1 || !strings.Contains(said[0], want) || strings.Count(said[0], "150Mi") != 1 {
			t.Errorf("%s: %q, want %s", signal, said, want)
		}
	}
}
