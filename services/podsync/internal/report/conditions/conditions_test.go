package conditions

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/health"
)

var then = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC))

func readySince(at metav1.Time) []v1.PodCondition {
	return []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: at, Message: "not kept"}}
}

// life lets a Keeper on the file live until what do does is written.
func life(t *testing.T, file string, do func(*Keeper)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := New(Deps{File: file})
		k.Load(logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		do(k)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func loaded(file string) *Keeper {
	k := New(Deps{File: file})
	k.Load(logr.Discard())
	return k
}

func TestTransitionTimesOutliveTheProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "polylet", "conditions.json")
	life(t, file, func(k *Keeper) {
		k.Set("u", append(readySince(then), v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: then}))
	})
	got := loaded(file).Of("u")
	if len(got) != 1 || got[0].Type != v1.PodReady || got[0].Status != v1.ConditionTrue || got[0].LastTransitionTime.Unix() != then.Unix() || got[0].Message != "" {
		t.Fatalf("%+v", got)
	}
	if other := loaded(file).Of("another"); other != nil {
		t.Errorf("a pod that was never there: %+v", other)
	}
}

func TestAPodThatIsGoneIsNotKept(t *testing.T) {
	for name, forget := range map[string]func(*Keeper){
		"it ended":                           func(k *Keeper) { k.Forget("u") },
		"it did not come back after a start": func(k *Keeper) { k.Prune(func(uid types.UID) bool { return uid == "v" }) },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "conditions.json")
			life(t, file, func(k *Keeper) { k.Set("u", readySince(then)); k.Set("v", readySince(then)) })
			life(t, file, forget)
			k := loaded(file)
			if k.Of("u") != nil || k.Of("v") == nil {
				t.Errorf("gone: %v, still there: %v", k.Of("u"), k.Of("v"))
			}
		})
	}
}

func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conditions.json")
	life(t, file, func(k *Keeper) { k.Set("u", readySince(then)) })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	life(t, file, func(k *Keeper) {
		k.Set("u", readySince(then))
		synctest.Wait() // it is written
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
		k.Set("u", readySince(metav1.NewTime(then.Truncate(time.Second))))
	})
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the same conditions are written again: %v", err)
	}
}

// wrong returns what the tracker has heard that is not well.
func wrong(h *health.Tracker) (messages []string) {
	for _, d := range h.Dependencies() {
		if !d.Ready {
			messages = append(messages, d.Message)
		}
	}
	return messages
}

func TestADamagedFileIsSetAsideAndTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conditions.json")
	if err := os.WriteFile(file, []byte("{half of"), 0o600); err != nil {
		t.Fatal(err)
	}
	told := health.NewTracker(logr.Discard())
	k := New(Deps{File: file, Health: told})
	k.Load(logr.Discard())
	if k.Of("u") != nil || !strings.Contains(strings.Join(wrong(told), " "), file) {
		t.Errorf("kept %v, told %v", k.Of("u"), wrong(told))
	}
	life(t, file, func(k *Keeper) { k.Set("u", readySince(then)) })
	if loaded(file).Of("u") == nil {
		t.Error("it is not kept anew")
	}
}

func TestWhatCannotBeWrittenIsTriedAgainUntilItCan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in the way", "conditions.json")
	if err := os.WriteFile(filepath.Dir(file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	told := health.NewTracker(logr.Discard())
	synctest.Test(t, func(t *testing.T) {
		k := New(Deps{File: file, Health: told})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		k.Set("u", readySince(then))
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(strings.Join(wrong(told), " "), filepath.Dir(file)) {
			t.Errorf("told %v", wrong(told))
		}
		if err := os.Remove(filepath.Dir(file)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // nothing changes meanwhile
		synctest.Wait()
		if len(wrong(told)) != 0 || loaded(file).Of("u") == nil {
			t.Errorf("told %v, kept %v", wrong(told), loaded(file).Of("u"))
		}
		cancel()
		<-done
	})
}

func TestADamagedFileIsReplacedAtOnceByASoundOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "conditions.json")
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	told := health.NewTracker(logr.Discard())
	synctest.Test(t, func(t *testing.T) {
		k := New(Deps{File: file, Health: told})
		k.Load(logr.Discard())
		if !strings.Contains(strings.Join(wrong(told), " "), file) {
			t.Errorf("told %v", wrong(told))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() || len(wrong(told)) != 0 {
			t.Errorf("the file: %v, told %v", err, wrong(told))
		}
		cancel()
		<-done
	})
}
