package stopping

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func loaded(file string) *Keeper {
	k := New(Deps{File: file})
	k.Load(logr.Discard())
	return k
}

func TestADecisionOutlivesACrashOnceItIsPut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "polylet", "stops.json")
	grace := int64(7)
	stop := podstate.Stop{Reason: "Evicted", Message: "low", Signal: "memory.available", ByContainers: true, GraceSeconds: &grace, Condition: &v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}
	k := loaded(file)
	if err := k.Put(t.Context(), "u", stop); err != nil {
		t.Fatal(err)
	}
	if got := loaded(file).Of("u"); got == nil || !reflect.DeepEqual(*got, stop) {
		t.Errorf("%+v", got)
	}
	if got := loaded(file).Of("other"); got != nil {
		t.Errorf("a pod that nobody ended: %+v", got)
	}
}

func TestAStatusThatAPodHasEndedWithOutlivesACrashBesideTheDecision(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stops.json")
	last := &v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "a", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}}}}}
	k := loaded(file)
	if err := errors.Join(k.Put(t.Context(), "ended", podstate.Stop{Reason: "r"}), k.PutLast(t.Context(), "ended", last), k.PutLast(t.Context(), "itself", last)); err != nil {
		t.Fatal(err)
	}
	k = loaded(file)
	if got := k.Last("itself"); !reflect.DeepEqual(got, last) || k.Of("itself") != nil {
		t.Errorf("of one that has ended by itself: %+v, the node's decision %v", got, k.Of("itself"))
	}
	if err := k.Put(t.Context(), "ended", podstate.Stop{Reason: "second"}); err != nil {
		t.Fatal(err)
	}
	if got, stop := k.Last("ended"), k.Of("ended"); !reflect.DeepEqual(got, last) || stop == nil || stop.Reason != "r" {
		t.Errorf("of one that the node has ended: %+v, %v", got, stop)
	}
	k.Withdraw("nobody")
	if k.Withdraw("ended"); !reflect.DeepEqual(k.Last("ended"), last) || k.Of("ended") != nil {
		t.Errorf("once the decision is withdrawn: %+v, %v", k.Last("ended"), k.Of("ended"))
	}
	if err := k.Put(t.Context(), "late", podstate.Stop{Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	if k.Withdraw("late"); k.Of("late") != nil {
		t.Error("a decision that is withdrawn is still there")
	}
	if k.Forget("ended"); k.Last("ended") != nil || k.Last("nobody") != nil {
		t.Error("what is forgotten is still there")
	}
}

func TestWhatIsOverIsForgottenInTheFileToo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stops.json")
	synctest.Test(t, func(t *testing.T) {
		k := loaded(file)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		for _, stop := range []podstate.Stop{{Reason: "a"}, {Reason: "b"}} {
			if err := k.Put(ctx, "uid-a", stop); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Put(ctx, "uid-b", podstate.Stop{Reason: "c"}); err != nil {
			t.Fatal(err)
		}
		k.Forget("uid-a")
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	if k := loaded(file); k.Of("uid-a") != nil || k.Of("uid-b") == nil {
		t.Errorf("a %v, b %v", k.Of("uid-a"), k.Of("uid-b"))
	}
}

func TestADamagedFileIsSetAsideAndASoundOneTakesItsPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stops.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := loaded(file)
	if err := k.Put(t.Context(), "u", podstate.Stop{Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	if got := loaded(file).Of("u"); got == nil || got.Reason != "r" {
		t.Errorf("%+v", got)
	}
}

func TestAFileThatCannotBeWrittenIsToldToWhoPuts(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "polylet"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k := New(Deps{File: filepath.Join(dir, "polylet", "stops.json")})
	if err := k.Put(t.Context(), "u", podstate.Stop{Reason: "r"}); err == nil {
		t.Error("no error")
	}
	if k.Of("u") == nil {
		t.Error("this life does not know it")
	}
}

func TestALaterDecisionOnAPodShortensItsTimeAndChangesNothingElse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stops.json")
	k := loaded(file)
	long, short := int64(30), int64(3)
	for _, stop := range []podstate.Stop{{Reason: "Evicted", Message: "low"}, {Reason: "b", GraceSeconds: &short}, {Reason: "c", GraceSeconds: &long}, {Reason: "d"}} {
		if err := k.Put(t.Context(), "u", stop); err != nil {
			t.Fatal(err)
		}
	}
	if got := loaded(file).Of("u"); got == nil || !reflect.DeepEqual(*got, podstate.Stop{Reason: "Evicted", Message: "low", GraceSeconds: &short}) {
		t.Errorf("%+v", got)
	}
}

func TestADiskThatHangsIsNotWaitedForBeyondTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := New(Deps{File: filepath.Join(t.TempDir(), "stops.json")})
		answers, written := make(chan struct{}), 0
		k.writeFile = func(map[types.UID]entry) error {
			<-answers
			written++
			return nil
		}
		for _, uid := range []types.UID{"first", "second"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := k.Put(ctx, uid, podstate.Stop{Reason: "Evicted"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", uid, err)
			}
			cancel()
			if k.Of(uid) == nil {
				t.Errorf("%s goes on", uid)
			}
		}
		close(answers)
		if err := k.Put(t.Context(), "third", podstate.Stop{Reason: "Evicted"}); err != nil || written != 2 {
			t.Errorf("when it answers: %v, written %d times", err, written)
		}
	})
}
