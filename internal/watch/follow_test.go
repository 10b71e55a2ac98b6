package watch

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/health"
)

// script is a stream that plays frames and then fails.
func script(frames ...Header) func() (Header, error) {
	i := -1
	return func() (Header, error) {
		i++
		if i < len(frames) {
			return frames[i], nil
		}
		return Header{}, io.ErrUnexpectedEOF
	}
}

func TestFollowStartsOverAfterABreakAGapOrANewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		streams := []func() (Header, error){
			script(Header{1, 5, false}),                     // no snapshot
			script(Header{1, 1, true}, Header{1, 3, false}), // gap
			script(Header{1, 1, true}, Header{2, 2, false}), // epoch
			script(Header{2, 1, true}, Header{2, 2, false}), // break
			nil, // refused
			script(Header{3, 1, true}),
		}
		var handled []Header
		connects := 0
		err := Follow(ctx, Follower[Header]{
			Name: "test",
			Connect: func(context.Context) (func() (Header, error), error) {
				if connects == len(streams) {
					cancel()
					return nil, io.EOF
				}
				connects++
				if streams[connects-1] == nil {
					return nil, errors.New("refused")
				}
				return streams[connects-1], nil
			},
			Header: func(h Header) Header { return h },
			Handle: func(_ context.Context, h Header) error { handled = append(handled, h); return nil },
		})
		if err != nil {
			t.Fatalf("Follow = %v", err)
		}
		want := []Header{{1, 1, true}, {1, 1, true}, {2, 1, true}, {2, 2, false}, {3, 1, true}}
		if len(handled) != len(want) {
			t.Fatalf("handled %v", handled)
		}
		for i := range want {
			if handled[i] != want[i] {
				t.Fatalf("frame %d: %v, want %v", i, handled[i], want[i])
			}
		}
	})
}

type recorder struct {
	mu     sync.Mutex
	states []bool
}

func (r *recorder) Set(_ string, ready bool, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, ready)
}

func TestFollowReportsHealthAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		rec := &recorder{}
		tries := 0
		Follow(ctx, Follower[Header]{
			Name: "test", Health: rec,
			Connect: func(context.Context) (func() (Header, error), error) { tries++; return nil, errors.New("refused") },
			Header:  func(h Header) Header { return h },
			Handle:  func(context.Context, Header) error { return nil },
		})
		// 50 ms doubling to 2 s: about 5 tries in the first 2 s, then one per 2 s.
		if tries < 25 || tries > 45 {
			t.Fatalf("%d tries in a minute", tries)
		}
		for _, ready := range rec.states {
			if ready {
				t.Fatal("reported ready without a frame")
			}
		}
	})
}

// Who serves it may wait for something itself.
func TestAStreamThatIsOpenAndSaysNothingIsNotSaidToBeBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tracker, tries, done := health.NewTracker(logr.Discard()), 0, make(chan struct{})
		go func() {
			defer close(done)
			_ = Follow(ctx, Follower[Header]{
				Name: "test", Health: tracker,
				Connect: func(ctx context.Context) (func() (Header, error), error) {
					if tries++; tries == 1 {
						return nil, errors.New("refused")
					}
					return func() (Header, error) { <-ctx.Done(); return Header{}, ctx.Err() }, nil
				},
				Header: func(h Header) Header { return h },
				Handle: func(context.Context, Header) error { return nil },
			})
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		all := tracker.Dependencies()
		if len(all) != 1 || all[0].Ready || strings.Contains(all[0].Message, "refused") || !strings.Contains(all[0].Message, "is open") {
			t.Errorf("it says %+v", all)
		}
		cancel()
		<-done
	})
}
