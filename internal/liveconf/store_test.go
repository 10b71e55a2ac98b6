package liveconf

import (
	"fmt"
	"os"
	"strings"
	"testing"

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
	s := newStore(t.TempDir(), "")
	for pods := range mostBad + 5 {
		file, err := s.setBad(uint64(pods), loaded(t, fmt.Sprintf("--max-pods=%d", pods)), "why")
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
	}
	if n := len(s.badFiles()); n != mostBad {
		t.Errorf("%d are kept", n)
	}
	if why := s.bad(loaded(t, fmt.Sprintf("--max-pods=%d", mostBad+4))); why != "why" {
		t.Errorf("the last one was bad because %q", why)
	}
	if why := s.bad(loaded(t)); why != "" {
		t.Errorf("one that was not tried was bad because %q", why)
	}
	if s.forgetBad(); len(s.badFiles()) > 0 {
		t.Error("they are not forgotten")
	}
}

func TestAKeptConfigurationThatTheseFlagsMakeInvalidIsNotUsed(t *testing.T) {
	s := newStore(t.TempDir(), "")
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
