package observe

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAPodThatCannotBeLookedAtHoldsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Value // the id of the container whose status hangs
		hung.Store("")
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, m string, req any) fakecri.Fault {
			q, ok := req.(*runtimeapi.ContainerStatusRequest)
			return fakecri.Fault{Hang: ok && hung.Load() != "" && q.GetContainerId() == hung.Load()}
		}})
		time.Sleep(3 * time.Second)
		_, id := r.start("a", nil)
		hung.Store(id)
		for _, uid := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
			r.start(uid, nil)
		}
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait()
		if r.state("k") != podstate.StateRunning || r.state("b") != podstate.StateRunning {
			t.Error("others were not seen")
		}
		hung.Store("")
		time.Sleep(30 * time.Second)
		if o := r.sink.get("a"); !o.Known || r.state("a") != podstate.StateRunning {
			t.Errorf("the pod was not seen after the hang: %+v", o)
		}
	})
}

// What an action that failed has done all the same is not known before the pod was
// looked at.
func TestAPodIsLookedAtUntilItIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Int32
		refused.Store(1 << 30)
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
			if strings.Contains(m, "ListPodSandbox") && refused.Add(-1) >= 0 {
				return fakecri.Fault{Err: status.Error(codes.Internal, "not now")}
			}
			return fakecri.Fault{}
		}})
		time.Sleep(time.Second)
		_, id := r.start("u", nil)
		seen := make(chan struct{})
		go func() {
			defer close(seen)
			r.obs.RefreshUntilSeen(t.Context(), "u")
		}()
		time.Sleep(30 * time.Second)
		select {
		case <-seen:
			t.Fatal("it counts as seen though nothing can be listed")
		default:
		}
		refused.Store(0)
		began := time.Now()
		<-seen
		if o := r.obs.Current("u"); o.Container(id) == nil || time.Since(began) > 6*time.Second {
			t.Errorf("after %s: %+v", time.Since(began), o)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		refused.Store(1 << 30)
		r.obs.RefreshUntilSeen(ended, "u") // returns
	})
}
