package observe

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

func TestLostEventsAreMadeUpForByTheSlowList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
			return fakecri.Fault{DropEvent: m == "event"}
		}})
		time.Sleep(5 * time.Second)
		r.start("u", nil)
		time.Sleep(67 * time.Second)
		synctest.Wait()
		if r.state("u") != podstate.StateRunning {
			t.Errorf("observed %+v", r.sink.get("u"))
		}
	})
}

// TestPodsAreSeenThoughAllOfThemDoNotFitIntoOneMessage: hundreds of pods that have
// ended leave their sandboxes, and a runtime lists all or nothing.
func TestPodsAreSeenThoughAllOfThemDoNotFitIntoOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooLarge := status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17221680 vs. 16777216)")
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, _ string, req any) fakecri.Fault {
			if q, ok := req.(*runtimeapi.ListPodSandboxRequest); ok && q.GetFilter() == nil {
				return fakecri.Fault{Err: tooLarge}
			}
			return fakecri.Fault{}
		}})
		for _, uid := range []string{"runs", "ended"} {
			if err := os.MkdirAll(filepath.Join(r.dir, "logs", "ns_name_"+uid), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = r.start("runs", nil)
		sandbox, container := r.start("ended", nil)
		_ = r.rt.Exit(container, 3, "")
		if _, err := r.rt.Runtime().StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.state("runs") != podstate.StateRunning || r.state("ended") != podstate.StateExited || len(r.sink.get("ended").Sandboxes) != 1 {
			t.Errorf("seen: %+v and %+v", r.sink.get("runs"), r.sink.get("ended"))
		}
		if r.sink.wholes() != 1 {
			t.Error("it is not said that all was seen")
		}
		for _, d := range r.health.Dependencies() {
			if !d.Ready {
				t.Errorf("%+v", d)
			}
		}
	})
}

// One pod has more, in labels and annotations or dead containers, than fits into one
// message. Nothing is known of it, so nothing is done with it; the others go on.
func TestAPodThatIsTooLargeToBeListedStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooLarge := status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17221680 vs. 16777216)")
		var large atomic.Bool
		large.Store(true)
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, _ string, req any) fakecri.Fault {
			if q, ok := req.(*runtimeapi.ListContainersRequest); ok && large.Load() && (q.GetFilter() == nil || q.GetFilter().GetLabelSelector()[cri.LabelPodUID] == "large") {
				return fakecri.Fault{Err: tooLarge}
			}
			return fakecri.Fault{}
		}})
		_, _ = r.start("large", nil)
		_, other := r.start("other", nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.state("other") != podstate.StateRunning || r.sink.wholes() != 1 {
			t.Errorf("the other pod: %+v", r.sink.get("other"))
		}
		if o := r.sink.get("large"); o.Known || !r.sink.told("large") {
			t.Errorf("the large one is told of as known, or not at all: %+v", o)
		}
		_ = r.rt.Exit(other, 3, "")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.state("other") != podstate.StateExited {
			t.Errorf("the other pod after its end: %+v", r.sink.get("other"))
		}
		shown := func() (d health.Dependency) {
			all := r.health.Dependencies()
			if i := slices.IndexFunc(all, func(d health.Dependency) bool { return d.Name == "large pods" }); i >= 0 {
				d = all[i]
			}
			return d
		}
		if d := shown(); d.Ready || !strings.Contains(d.Message, "pod uid large does not fit") || !strings.Contains(d.Message, "crictl rm") {
			t.Errorf("health says %+v", d)
		}
		large.Store(false) // somebody has removed dead containers
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.state("large") != podstate.StateRunning || !r.sink.get("large").Known || !shown().Ready {
			t.Errorf("afterwards: %+v, %+v", r.sink.get("large"), shown())
		}
		// What is known stays while it is too large again.
		large.Store(true)
		time.Sleep(5 * time.Second)
		if r.state("large") != podstate.StateRunning || !r.sink.get("large").Known {
			t.Errorf("what was known is not any more: %+v", r.sink.get("large"))
		}
	})
}

func TestThatPodsAreListedOneByOneIsSaidOnce(t *testing.T) {
	var said []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, line string) { said = append(said, line) }, funcr.Options{}))
	o := New(Config{}, Deps{})
	for _, pods := range []bool{false, true, true, false, false} {
		o.listedBy(ctx, pods)
	}
	if len(said) != 2 || !strings.Contains(said[0], "does not fit") || !strings.Contains(said[1], "fits into one of its messages again") {
		t.Errorf("said %q", said)
	}
}

func TestThatNothingCanBeListedIsShownThoughTheRuntimeSaysThatItIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		r := newRig(t, fakecri.Config{NoEvents: true, Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
			if method == "ListContainers" && broken.Load() {
				return fakecri.Fault{Err: status.Error(codes.Internal, "the database is damaged")}
			}
			return fakecri.Fault{}
		}})
		shown := func() (text string) {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			for _, d := range r.health.Dependencies() {
				if !d.Ready {
					text += d.Name + ": " + d.Message
				}
			}
			return text
		}
		if text := shown(); !strings.Contains(text, "containers: ") || !strings.Contains(text, "the database is damaged") {
			t.Errorf("while nothing can be listed it shows %q", text)
		}
		// KubeletPlegDurationHigh is an alert on this histogram.
		if n := counted(t, r.reg, "kubelet_pleg_relist_duration_seconds"); n < 2 {
			t.Errorf("%d attempts were counted", n)
		}
		if n := counted(t, r.reg, "kubelet_pleg_relist_interval_seconds"); n < 1 {
			t.Errorf("%d intervals between attempts were counted", n)
		}
		broken.Store(false)
		if text := shown(); text != "" {
			t.Errorf("after it was mended it shows %q", text)
		}
	})
}
