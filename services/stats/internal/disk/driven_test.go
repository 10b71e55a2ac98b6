package disk

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestADriverThatHangsDelaysNoOthersAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := map[string]int{}
		drivens := NewDrivens(DrivenConfig{Period: time.Minute, Deadline: 30 * time.Second}, func(ctx context.Context, v Volume) (Driven, error) {
			mu.Lock()
			asked[v.Name]++
			n := asked[v.Name]
			mu.Unlock()
			if v.Name == "hung" {
				<-ctx.Done()
				return Driven{}, ctx.Err()
			}
			return Driven{Measured: Measured{Tree: Tree{Bytes: uint64(n)}}}, nil
		})
		hung, well := Volume{"u", "hung"}, Volume{"u", "well"}
		get := func() map[Volume]Driven {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return drivens.Get(ctx, []Volume{hung, well})
		}
		begun := time.Now()
		if got := get(); len(got) != 1 || got[well].Bytes != 1 || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", got, time.Since(begun))
		}
		time.Sleep(time.Minute)
		begun = time.Now()
		if get(); time.Since(begun) != 0 {
			t.Errorf("it waited %v for a driver that has not answered before", time.Since(begun))
		}
		synctest.Wait()
		if got := get(); got[well].Bytes != 2 || asked["hung"] != 1 {
			t.Errorf("%v, asked %v", got, asked)
		}
		time.Sleep(time.Hour)
		if drivens.Get(t.Context(), nil); len(drivens.entries) != 0 {
			t.Errorf("%d volumes are kept that are gone", len(drivens.entries))
		}
	})
}

// One question may fail because the driver is just restarted.
func TestTheLastAnswerOfADriverStaysUntilItHasFailedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail error
		took := 0
		drivens := NewDrivens(DrivenConfig{Period: time.Minute, Deadline: time.Second, Measured: func(string, time.Duration) { took++ }}, func(context.Context, Volume) (Driven, error) {
			return Driven{Driver: "d", Measured: Measured{Tree: Tree{Bytes: 1}}}, fail
		})
		v := Volume{"u", "v"}
		asked := func() (got map[Volume]Driven) {
			time.Sleep(2 * time.Minute)
			drivens.Get(t.Context(), []Volume{v})
			synctest.Wait()
			return drivens.Get(t.Context(), []Volume{v})
		}
		for i, want := range []bool{true, true, false, false} {
			if got, known := asked()[v]; known != want || known && got.Bytes != 1 {
				t.Errorf("after %d failures: %v, %v", i, got, known)
			}
			fail = errors.New("away")
		}
		if took != 1 {
			t.Errorf("%d answers were counted", took)
		}
		if fail = nil; len(asked()) != 1 {
			t.Error("it answers again, and that is not shown")
		}
	})
}

// Those of a pod without a ready sandbox are asked for by who looks at evictions, and not by
// a scrape.
func TestAVolumeThatOnlySomeAskForIsAskedForOnceAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		drivens := NewDrivens(DrivenConfig{Period: time.Minute, Deadline: 30 * time.Second}, func(ctx context.Context, v Volume) (Driven, error) {
			if v.Name != "hung" {
				return Driven{}, nil
			}
			asked++
			<-ctx.Done()
			return Driven{}, ctx.Err()
		})
		for range 12 { // two minutes
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			drivens.Get(ctx, []Volume{{"u", "well"}, {"k", "hung"}})
			drivens.Get(ctx, []Volume{{"u", "well"}})
			cancel()
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if asked > 2 {
			t.Errorf("asked %d times in two minutes", asked)
		}
		time.Sleep(time.Minute)
	})
}

func TestDriversAreAskedEachPeriodThoughNobodyWantsTheAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := 0
		drivens := NewDrivens(DrivenConfig{Period: time.Minute, Deadline: 30 * time.Second}, func(context.Context, Volume) (Driven, error) {
			mu.Lock()
			asked++
			mu.Unlock()
			time.Sleep(2 * time.Second)
			return Driven{}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- drivens.Run(ctx, func() []Volume { return []Volume{{"u", "v"}} }) }()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if asked < 8 || asked > 10 {
			t.Errorf("asked %d times in ten minutes", asked)
		}
		time.Sleep(time.Minute)
	})
}
