package liveconf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
)

func loaded(t *testing.T, args ...string) *kubeletconfig.Loaded {
	t.Helper()
	l, err := kubeletconfig.Load(args)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestFewBadConfigurationsAreKeptAndOnlyForRoot(t *testing.T) {
	s := newStore(t.TempDir(), "", "")
	for pods := range mostBad + 5 {
		file, err := s.setBad(uint64(pods), loaded(t, fmt.Sprintf("--max-pods=%d", pods)), "why")
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
	}
	if n := len(fsatomic.Oldest(s.dir, badPrefix+"*.json")); n != mostBad {
		t.Errorf("%d are kept", n)
	}
	if why := s.bad(loaded(t, fmt.Sprintf("--max-pods=%d", mostBad+4))); why != "why" {
		t.Errorf("the last one was bad because %q", why)
	}
	if why := s.bad(loaded(t)); why != "" {
		t.Errorf("one that was not tried was bad because %q", why)
	}
	if s.forgetBad(); len(fsatomic.Oldest(s.dir, badPrefix+"*.json")) > 0 {
		t.Error("they are not forgotten")
	}
}

func TestWhatIsKeptAfterItsDirectoryWasRemovedIsThereAndOnlyForRoot(t *testing.T) {
	s := newStore(filepath.Join(t.TempDir(), "polylet", "configuration"), "", "")
	for range 2 {
		if err := s.setGood(1, loaded(t, "--max-pods=7")); err != nil {
			t.Fatal(err)
		}
		if good := s.lastKnownGood(nil); good == nil || good.Config.MaxPods != 7 {
			t.Errorf("it is %v", good)
		}
		if info, err := os.Stat(s.dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v %v", info, err)
		}
		if err := os.RemoveAll(filepath.Dir(s.dir)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAKeptConfigurationThatTheseFlagsMakeInvalidIsNotUsed(t *testing.T) {
	s := newStore(t.TempDir(), "", "")
	if err := s.setGood(1, loaded(t, "--image-gc-high-threshold=90")); err != nil {
		t.Fatal(err)
	}
	if l := s.lastKnownGood([]string{"--image-gc-low-threshold=95"}); l != nil {
		t.Error("it is used")
	}
	if damages := s.damages(); len(damages) != 1 || !strings.Contains(damages[0].Error(), goodFile) {
		t.Errorf("said %v", damages)
	}
	if l := s.lastKnownGood([]string{"--max-pods=5"}); l == nil || l.Config.MaxPods != 5 || *l.Config.ImageGCHighThresholdPercent != 90 {
		t.Error("flags do not go on top")
	}
}

func TestABadConfigurationThatCannotBeWrittenDownIsNotTriedAgainUntilTheNextStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file") // as a disk that is full
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, l := newStore(filepath.Join(file, "kept"), "", ""), loaded(t, "--max-pods=9")
	if _, err := s.setBad(1, l, "why"); err == nil {
		t.Fatal("it could be written down")
	}
	if why := s.bad(l); why != "why" {
		t.Errorf("it was bad because %q, and is tried each minute", why)
	}
	if why := s.bad(loaded(t)); why != "" {
		t.Errorf("another was bad because %q", why)
	}
	if s.forgetBad(); s.bad(l) != "" {
		t.Error("it is not forgotten")
	}
}

func TestWhoLooksForTheLastKnownGoodConfigurationLeavesItToWhoeverKeepsIt(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, goodFile), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "."+goodFile+fsatomic.TemporaryMark+"1"), nil, 0o600); err != nil { // which another process writes
		t.Fatal(err)
	}
	if LastKnownGood(dir, nil) != nil {
		t.Error("half a file is one")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, left are %v", err, entries)
	}
	if _, err := os.Stat(filepath.Join(dir, goodFile)); err != nil {
		t.Errorf("what another process keeps was set aside: %v", err)
	}
}
