package timeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

var began = time.Unix(1000, 0)

func TestWhatRepeatsIsOneEntryThatCounts(t *testing.T) {
	var l Line
	for i := range 100 {
		at := began.Add(time.Duration(i) * time.Second)
		l.Note(Entry{At: at, What: "container runs", Object: "c"})
		l.Note(Entry{At: at, What: "container ended", Object: "c", Error: "exit code 1"})
	}
	got := l.Read().Entries
	if len(got) != 2 || got[1].Count != 100 || !got[1].First.Equal(began) || !got[1].At.Equal(began.Add(99*time.Second)) {
		t.Errorf("%+v", got)
	}
}

// A network plugin that fails is told with the id of the sandbox, a new one each time.
func TestAFailureWithAnotherIDRepeats(t *testing.T) {
	var l Line
	text := func(i int) string { return fmt.Sprintf(`network for sandbox "%064x": no address`, 1<<40+i) }
	for i := range 100 {
		l.Note(Entry{At: began.Add(time.Duration(i) * time.Second), What: "make sandbox", Error: text(i)})
	}
	got := l.Read().Entries
	if len(got) != 1 || got[0].Count != 100 || got[0].Error != text(99) {
		t.Errorf("%d entries, the last is %+v", len(got), got[len(got)-1])
	}
	for i := range 100 { // an exec probe whose command is not there
		l.Note(Entry{At: began.Add(time.Hour), What: ProbeAttempt, Object: "c", Detail: fmt.Sprintf("Liveness probe errored: exec %064x: no such file", 1<<40+i)})
	}
	if got := l.Read().Entries; len(got) != 2 || got[1].Count != 100 {
		t.Errorf("%d entries of probes", len(got)-1)
	}
	l.Note(Entry{At: began.Add(time.Hour), What: "make sandbox", Error: `network for sandbox "0123456789": no plugin`})
	if got := l.Read().Entries; len(got) != 3 {
		t.Errorf("another cause is not told: %+v", got)
	}
}

func TestALineIsBoundedInEntriesAndBytes(t *testing.T) {
	for name, text := range map[string]string{"many": "x", "long": strings.Repeat("ä", 10<<10)} {
		var l Line
		for i := range 1000 {
			l.Note(Entry{At: began, What: "w", Object: fmt.Sprint(i), Error: text, Detail: text})
		}
		r := l.Read()
		bytes := 0
		for i := range r.Entries {
			bytes += r.Entries[i].bytes()
			if !strings.HasPrefix(text, strings.TrimSuffix(r.Entries[i].Error, " …")) {
				t.Errorf("%s: a text is not a beginning of what was given", name)
			}
		}
		if len(r.Entries) == 0 || len(r.Entries) > mostEntries || bytes > mostBytes || bytes != l.bytes || r.Dropped != 1000-len(r.Entries) {
			t.Errorf("%s: %d entries, %d bytes, counted %d, dropped %d", name, len(r.Entries), bytes, l.bytes, r.Dropped)
		}
		if last := r.Entries[len(r.Entries)-1]; last.Object != "999" {
			t.Errorf("%s: the newest is %s", name, last.Object)
		}
	}
}

func TestAStepWithinAnActionShowsWhileItRunsAndIsKeptWhenItWasSlowOrFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Line
		action := l.Begin("set up volumes", "", "", time.Now())
		ctx := Within(t.Context(), action)
		quickly := Start(ctx, Volume, "a", "secret s")
		slowly := Start(ctx, Volume, "b", "nfs")
		badly := Start(ctx, Volume, "c", "configMap m")
		if r := l.Read(); len(r.Running) != 3 || r.Running[0].Action != "set up volumes" || r.Running[0].Detail != "secret s" || len(r.Entries) != 4 || !r.Entries[3].Running {
			t.Errorf("%+v", r)
		}
		quickly(nil)
		badly(errors.New("no such map"))
		time.Sleep(time.Second)
		slowly(nil)
		action.End(time.Now(), nil)
		r := l.Read()
		if len(r.Running) != 0 || len(r.Entries) != 3 || r.Entries[0].Error != "no such map" || r.Entries[1].Took != time.Second || r.Entries[2].What != "set up volumes" {
			t.Errorf("%+v", r)
		}
	})
}

func TestAStepOfNobodyIsNothing(t *testing.T) {
	Start(context.Background(), "w", "o", "")(errors.New("x"))
	var s *Step
	s.End(began, nil)
}

func TestPodsThatAreGoneAreKnownForSomeTimeAndNotTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBook()
		for i := range mostGone + 50 {
			uid := types.UID(fmt.Sprint(i))
			b.Open(uid).Named("ns", "p")
			b.Note(uid, Entry{What: "seen"})
			b.Close(uid)
			time.Sleep(time.Second)
		}
		b.Open("here").Named("ns", "q")
		if gone, all, _ := b.sizes(); gone != mostGone || all != mostGone+1 {
			t.Errorf("%d are kept of those that are gone, %d in all", gone, all)
		}
		if uid, ok := b.Gone("ns", "p"); !ok || uid != types.UID(fmt.Sprint(mostGone+49)) {
			t.Errorf("the newest of the name: %v %v", uid, ok)
		}
		if r, ok := b.Read("149"); !ok || r.Gone.IsZero() || len(r.Entries) != 1 {
			t.Errorf("%+v %v", r, ok)
		}
		b.Note("never", Entry{What: "x"})
		if _, ok := b.Read("never"); ok {
			t.Error("a pod that nobody opened has a line")
		}
		b.Open("149")
		if gone, _, _ := b.sizes(); gone != mostGone-1 {
			t.Error("a pod that came back counts as gone")
		}
		time.Sleep(keepGone + time.Second)
		if gone, all, timer := b.sizes(); gone != 0 || all != 2 || timer {
			t.Errorf("%d are kept for ever, %d in all, timer %v", gone, all, timer)
		}
	})
}

// sizes is what a Book holds, and whether its timer runs.
func (b *Book) sizes() (gone, all int, timer bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.gone), len(b.lines), b.timer != nil
}

func TestWhatIsNoTextIsShownAsText(t *testing.T) {
	for _, text := range []string{"a\xff", strings.Repeat("\xff\xc3", 2000)} {
		if got := shorten(text, 100); !utf8.ValidString(got) || len(got) > 100 {
			t.Errorf("%q", got)
		}
	}
}
