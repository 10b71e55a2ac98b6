package execute

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

func TestReasonsOfFailures(t *testing.T) {
	for _, tc := range []struct {
		kind   podstate.Kind
		fail   string
		err    error
		reason string
	}{
		{podstate.PullImage, "pull", reason.New("ErrImageNeverPull", errors.New("x")), "ErrImageNeverPull"},
		{podstate.SetupVolumes, "setup", errors.New("x"), "FailedMount"},
		{podstate.MakeSandbox, "run", errors.New("x"), "CreatePodSandboxError"},
		{podstate.StopSandbox, "stopsandbox", errors.New("x"), "KillPodSandboxError"},
		{podstate.RemoveCgroup, "rmcgroup", errors.New("x"), "FailedRemoveCgroup"},
		{podstate.DeleteObject, "finish", errors.New("x"), "FailedDelete"},
	} {
		h := &host{fail: map[string][]error{tc.fail: {tc.err}}}
		_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(podstate.Action{Key: podstate.Key{Kind: tc.kind}, Container: "c"}))
		if reason.Of(err) != tc.reason {
			t.Errorf("%s: %v, want reason %s", tc.kind, err, tc.reason)
		}
	}
}

func TestAnImageIsPulledForThePodsSandboxBeforeThereIsOne(t *testing.T) {
	for name, a := range map[string]podstate.Action{
		"of a container":     {Key: podstate.Key{Kind: podstate.PullImage, Object: "c"}, Container: "c"},
		"of an image volume": {Key: podstate.Key{Kind: podstate.PullImage, Object: podstate.VolumeKey("v")}, Volume: "v"},
	} {
		h := &host{}
		task := h.task(a)
		task.Pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:1"}}}}
		e := newExecutor(h, Config{})
		h.now.Sandboxes = nil
		task.Action.Early = true
		if _, err := e.Do(t.Context(), t.Context(), task); err != nil || !h.request.Early || h.request.Sandbox.GetMetadata().GetNamespace() != "ns" {
			t.Errorf("%s: %v, %v", name, h.request.Sandbox, err)
		}
	}
}

// hangs keeps nothing for as long as it may.
type hangs struct{}

func (hangs) Put(ctx context.Context, _ types.UID, _ podstate.Stop) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (h hangs) PutLast(ctx context.Context, uid types.UID, _ *v1.PodStatus) error {
	return h.Put(ctx, uid, podstate.Stop{})
}

func TestADiskThatHangsIsNoReasonForAPodNotToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		h := &host{}
		e := newExecutor(h, Config{})
		e.deps.Ends = hangs{}
		begun := time.Now()
		_, err := e.Do(ctx, ctx, h.task(podstate.Action{Key: podstate.Key{Kind: podstate.KeepStop}, Stop: &podstate.Stop{Reason: "Evicted"}}))
		if took := time.Since(begun); reason.Of(err) != "FailedKeepStop" || took > 10*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestVolumesAreTakenDownForTheNamespaceOfTheirPod: so many of a namespace's servers are waited
// for at once, also after a restart.
func TestVolumesAreTakenDownForTheNamespaceOfTheirPod(t *testing.T) {
	for want, known := range map[string]bool{`teardown for "ns"`: true, `teardown for ""`: false} {
		h := &host{}
		task := h.task(podstate.Action{Key: podstate.Key{Kind: podstate.TeardownVolumes}})
		if !known {
			task.Pod = nil
		}
		if _, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task); err != nil || len(h.log) != 1 || h.log[0] != want {
			t.Errorf("%q, %v", h.log, err)
		}
	}
}
