package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

func TestWhatTheNodeIsShortOfIsHandedOn(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		for _, tc := range []struct {
			name   string
			req    *podsyncv1.SetPressureRequest
			want   string
			counts time.Duration
			code   codes.Code
		}{
			{"memory", &podsyncv1.SetPressureRequest{Conditions: []string{"MemoryPressure"}}, "MemoryPressure", time.Minute, codes.OK},
			{"all, one twice", &podsyncv1.SetPressureRequest{Conditions: []string{"PIDPressure", "DiskPressure", "PIDPressure", "MemoryPressure"}, Ttl: durationpb.New(time.Second)}, "PIDPressure DiskPressure MemoryPressure", time.Second, codes.OK},
			{"nothing", &podsyncv1.SetPressureRequest{Ttl: durationpb.New(time.Hour)}, "", time.Hour, codes.OK},
			{"no such condition", &podsyncv1.SetPressureRequest{Conditions: []string{"Ready"}}, "", 0, codes.InvalidArgument},
			{"no time", &podsyncv1.SetPressureRequest{Ttl: durationpb.New(0)}, "", 0, codes.InvalidArgument},
			{"for ever", &podsyncv1.SetPressureRequest{Ttl: durationpb.New(time.Hour + 1)}, "", 0, codes.InvalidArgument},
			{"time that is none", &podsyncv1.SetPressureRequest{Ttl: &durationpb.Duration{Seconds: 1, Nanos: -1}}, "", 0, codes.InvalidArgument},
		} {
			r.act = acts{}
			_, err := r.client.SetPressure(t.Context(), tc.req)
			var got []string
			for _, c := range r.act.conditions {
				got = append(got, string(c))
			}
			if status.Code(err) != tc.code || strings.Join(got, " ") != tc.want || r.act.counts != tc.counts {
				t.Errorf("%s: %v; %v for %v", tc.name, err, got, r.act.counts)
			}
		}
	})
}

func TestReclaimSaysWhatWasFreedAndWhatWasNot(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.act.freed = Reclaimed{Count: 3, Failed: slices.Repeat([]string{"one"}, 150)}
		got, err := r.client.Reclaim(t.Context(), &podsyncv1.ReclaimRequest{Containers: true})
		if err != nil || got.GetContainers() != 3 || got.GetImages() != 0 || len(got.GetFailed()) != 100 {
			t.Errorf("%v, %v", got, err)
		}
		r.act.freed, r.act.err = Reclaimed{Count: 1}, errors.New("the runtime is away")
		got, err = r.client.Reclaim(t.Context(), &podsyncv1.ReclaimRequest{Containers: true, Images: true})
		if err != nil || got.GetContainers() != 1 || got.GetImages() != 7 || got.GetImageBytes() != 1<<40 || len(got.GetFailed()) != 2 || got.GetFailed()[0] != "the runtime is away" {
			t.Errorf("%v, %v", got, err)
		}
		if text := got.GetFailed()[1]; len(text) > 2048 || !utf8.ValidString(text) {
			t.Errorf("a failure of %d bytes", len(text))
		}
		if got := strings.Join(r.act.asked, " "); got != "containers containers images" {
			t.Errorf("asked for %s", got)
		}
		if _, err := r.client.Reclaim(t.Context(), &podsyncv1.ReclaimRequest{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("nothing to reclaim: %v", err)
		}
		r.act.freed, r.act.err = Reclaimed{}, fmt.Errorf("%w: not all pods are known", rpcerr.ErrUnavailable)
		if got, err := r.client.Reclaim(t.Context(), &podsyncv1.ReclaimRequest{Containers: true}); status.Code(err) != codes.Unavailable {
			t.Errorf("its workers do not know all pods: %v, %v", got, err)
		}
		r.state.SourcesReady = time.Time{}
		if _, err := r.client.Reclaim(t.Context(), &podsyncv1.ReclaimRequest{Images: true}); status.Code(err) != codes.Unavailable {
			t.Errorf("before all pods are known: %v", err)
		}
	})
}

func TestOneReclaimGoesOnAtATime(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.act.holding = make(chan struct{})
		done := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := r.client.Reclaim(t.Context(), &podsyncv1.ReclaimRequest{Containers: true})
				done <- err
			}()
		}
		synctest.Wait()
		if len(r.act.asked) != 1 {
			t.Errorf("%d at once", len(r.act.asked))
		}
		close(r.act.holding)
		if err := errors.Join(<-done, <-done); err != nil || len(r.act.asked) != 2 {
			t.Errorf("%v, %d times", err, len(r.act.asked))
		}
	})
}
