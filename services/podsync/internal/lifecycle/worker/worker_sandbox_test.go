package worker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

// A runtime says that a sandbox is not ready before it takes its network down.
func TestTheObjectStaysUntilTheNetworkOfItsPodIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		var stops atomic.Int32
		r := newRig(t, fakecri.Config{
			Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": runsOn(fakecri.Term{})},
			Faults: func(_ context.Context, m string, _ any) fakecri.Fault {
				if m != "StopPodSandbox" {
					return fakecri.Fault{}
				}
				if stops.Add(1); !mended.Load() {
					return fakecri.Fault{After: true, Err: status.Error(codes.Unknown, `plugin type="calico" failed (delete)`)}
				}
				return fakecri.Fault{}
			},
		})
		r.reg.Ready("api")
		pod := newPod("p", v1.Container{Image: "app:1"})
		r.reg.Set(pod, "api")
		r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		r.reg.Set(deleted(pod, 30), "api")
		time.Sleep(time.Minute)
		synctest.Wait()
		if stops.Load() < 3 || r.e.isFinished(pod.UID) || len(r.eventsWith("FailedKillPod")) == 0 {
			t.Fatalf("within a minute: stopped %d times, object deleted %v, events %q", stops.Load(), r.e.isFinished(pod.UID), r.e.said())
		}
		r.stop() // what the previous run has tried says nothing to the next
		mended.Store(true)
		r.start()
		r.reg.Set(deleted(pod, 30), "api")
		r.reg.Ready("api")
		before := stops.Load()
		r.until("finished", time.Minute, func() bool { return r.e.isFinished(pod.UID) })
		if n := stops.Load() - before; n != 1 {
			t.Errorf("the next run stopped it %d times", n)
		}
	})
}

// Plugins of the network and the runtime see the sandbox's annotations only.
func TestWhatASandboxDoesNotHaveOfThePodsMetadataIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fakecri.Config{Images: []string{"app:1"}})
		r.reg.Ready("api")
		all, some := newPod("all", v1.Container{Image: "app:1"}), newPod("some", v1.Container{Image: "app:1"})
		all.Annotations = map[string]string{"example.com/small": "x"}
		some.Annotations = map[string]string{"example.com/large": strings.Repeat("secret", 6<<10), "example.com/small": "x"}
		for _, pod := range []*v1.Pod{all, some} {
			r.reg.Set(pod, "api")
			r.until("ready", time.Minute, func() bool { return isReady(r.status(pod.UID)) })
		}
		said := r.eventsWith("SandboxMetadataLeftOut")
		if len(said) != 1 || !strings.Contains(said[0], "of annotations, of which 32768 bytes fit: example.com/large (36881 bytes)") || strings.Contains(said[0], "secretsecret") || strings.Contains(said[0], "small") {
			t.Errorf("said %q", said)
		}
	})
}
