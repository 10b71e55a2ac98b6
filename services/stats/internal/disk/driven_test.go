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
		if drivens.Get(t.Context(), nil); len(drivens.entries) != 0 {
			t.Errorf("%d volumes are kept that are gone", len(drivens.entries))
		}
		time.Sleep(time.Hour)
	})
}

func TestTheLastAnswerOfADriverStaysWhileItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail error
		took := 0
		drivens := NewDrivens(DrivenConfig{Period: time.Minute, Deadline: time.Second, Measured: func(string, time.Duration) { took++ }}, func(context.Context, Volume) (Driven, error) {
			return Driven{Driver: "d", Measured: Measured{Tree: Tree{Bytes: 1}}}, fail
		})
		v := Volume{"u", "v"}
		drivens.Get(t.Context(), []Volume{v})
		fail = errors.New("away")
		for range 2 {
			time.Sleep(2 * time.Minute)
			if got := drivens.Get(t.Context(), []Volume{v}); got[v].Bytes != 1 {
				t.Errorf("%v", got)
			}
			synctest.Wait()
		}
		if took != 1 {
			t.Errorf("%d answers were counted", took)
		}
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
