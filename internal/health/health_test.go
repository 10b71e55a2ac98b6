package health

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

func TestSinceMovesOnlyWhenReadinessChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker(logr.Discard())
		start := time.Now()
		tr.Set("runtime", false, "no socket")
		time.Sleep(time.Second)
		tr.Set("runtime", false, "still no socket")
		got := tr.Dependencies()[0]
		if !got.Since.Equal(start) || got.Message != "still no socket" {
			t.Fatalf("after a new message: %+v", got)
		}
		tr.Set("runtime", true, "ignored")
		got = tr.Dependencies()[0]
		if !got.Since.Equal(start.Add(time.Second)) || got.Message != "" {
			t.Fatalf("after becoming ready: %+v", got)
		}
	})
}

func TestOnlyTransitionsAreLoggedAndNotified(t *testing.T) {
	lines := 0
	log := funcr.New(func(_, _ string) { lines++ }, funcr.Options{})
	tr := NewTracker(log)
	calls := 0
	tr.OnTransition(func(Dependency) { calls++ })
	for range 3 {
		tr.Set("apiserver", false, "refused")
	}
	for range 3 {
		tr.Set("apiserver", true, "")
	}
	if lines != 2 || calls != 2 {
		t.Fatalf("lines=%d calls=%d, want 2 and 2", lines, calls)
	}
}

func TestANoteIsShownAndMakesNothingWait(t *testing.T) {
	lines, calls := 0, 0
	tr := NewTracker(funcr.New(func(_, _ string) { lines++ }, funcr.Options{}))
	tr.OnTransition(func(Dependency) { calls++ })
	tr.Note("configuration", "two settings have no effect")
	got := tr.Dependencies()
	if ok, _ := tr.Ready(); !ok || len(got) != 1 || !got[0].Ready || got[0].Message != "two settings have no effect" || got[0].Since.IsZero() {
		t.Fatalf("ready=%v %+v", ok, got)
	}
	if lines != 0 || calls != 0 {
		t.Fatalf("lines=%d calls=%d, want none", lines, calls)
	}
}

func TestReadyNamesWhatIsMissingInOrder(t *testing.T) {
	tr := NewTracker(logr.Discard())
	if ok, _ := tr.Ready(); !ok {
		t.Fatal("a process without dependencies is ready")
	}
	tr.Set("stats", false, "x")
	tr.Set("podsync", false, "x")
	tr.Set("apiserver", true, "")
	ok, missing := tr.Ready()
	if ok || len(missing) != 2 || missing[0] != "podsync" || missing[1] != "stats" {
		t.Fatalf("ok=%v missing=%v", ok, missing)
	}
}

func TestAMessageCanBeSentWhateverIsInIt(t *testing.T) {
	tr := NewTracker(logr.Discard())
	tr.Set("static pods", false, "manifest /m/\xff.yaml: broken")
	tr.Set("runtime", false, strings.Repeat("long ", 1<<20))
	tr.Note("other", "\xff")
	for _, d := range tr.Dependencies() {
		if !utf8.ValidString(d.Message) || len(d.Message) > 20<<10 || d.Message == "" {
			t.Errorf("%s: %d bytes, %.40q", d.Name, len(d.Message), d.Message)
		}
	}
}
