package server

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// reads counts how often memory was read since it was asked last.
func (m *memory) reads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.count
	m.count = 0
	return n
}

func TestMemoryIsMeasuredMoreOftenTheNearerItIsToAMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := &memory{used: 1 << 20}
		s := newServer(t, used, "/proc")
		info, err := s.Machine.Info()
		if err != nil {
			t.Fatal(err)
		}
		all := info.MemoryCapacity
		ctx, cancel := context.WithCancel(t.Context())
		to := &stream[statsv1.WatchSignalsResponse]{ctx: ctx}
		done := make(chan error, 1)
		go func() {
			done <- s.WatchSignals(&statsv1.WatchSignalsRequest{
				Period: durationpb.New(10 * time.Second), Marks: []*statsv1.Mark{{Signal: "memory.available", Percent: 5}},
			}, to)
		}()
		frames := 0
		// look lets time pass, and says how often memory was read and how many frames came.
		look := func(d time.Duration) (reads, sent int) {
			time.Sleep(d) // Virtual.
			synctest.Wait()
			sent = len(to.all()) - frames
			frames += sent
			return used.reads(), sent
		}
		look(5 * time.Second)
		if reads, sent := look(20 * time.Second); reads > 30 || sent != 2 {
			t.Errorf("far off: read %d times, %d frames in 20 s", reads, sent)
		}
		used.use(all - all*6/100)
		look(time.Second)
		if reads, sent := look(10 * time.Second); reads < 49 || reads > 60 || sent > 2 {
			t.Errorf("near: read %d times, %d frames in 10 s", reads, sent)
		}
		used.use(all - all*49/1000) // Less than the resolution.
		if _, sent := look(200 * time.Millisecond); sent != 1 {
			t.Errorf("%d frames within 200 ms after the mark was crossed", sent)
		}
		if _, sent := look(10 * time.Second); sent < 9 || sent > 11 {
			t.Errorf("%d frames in 10 s while the mark is crossed", sent)
		}
		used.use(1 << 20)
		look(time.Second)
		if reads, sent := look(20 * time.Second); reads > 30 || sent > 3 {
			t.Errorf("far off again: read %d times, %d frames in 20 s", reads, sent)
		}
		used.use(all - 1)
		if _, sent := look(time.Second); sent != 1 {
			t.Errorf("%d frames within a second after all memory was taken at once", sent)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestMarksThatMeanNothingAreRefused(t *testing.T) {
	s := newServer(t, &memory{used: 1}, "/proc")
	for name, marks := range map[string][]*statsv1.Mark{
		"too many": make([]*statsv1.Mark, mostMarks+1), "negative": {{Percent: -1}}, "too much": {{Percent: 101}}, "no number": {{Percent: math.NaN()}},
	} {
		to := &stream[statsv1.WatchSignalsResponse]{ctx: t.Context()}
		if err := s.WatchSignals(&statsv1.WatchSignalsRequest{Marks: marks}, to); !errors.Is(err, rpcerr.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
