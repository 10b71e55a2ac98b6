package volume

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestARefreshThatWaitedForThePodsEndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.objects.setMap("cm", map[string]string{"a": "1"})
		pod := podWith(configMapVolume("v", "cm"))
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		f.mounts.Fail = func(call, _ string) error {
			if call == "unmount" {
				time.Sleep(time.Second)
			}
			return nil
		}
		var work sync.WaitGroup
		work.Go(func() {
			if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it has the pod's turn
		work.Go(func() {
			if _, err := f.set.refresh(t.Context(), pod.UID, 0); err != nil {
				t.Error(err)
			}
		})
		work.Wait()
		if n := len(f.set.pods); n != 0 {
			t.Errorf("%d pods are kept", n)
		}
		f.mounts.Fail = nil
		if err := f.set.Setup(t.Context(), pod); err != nil {
			t.Errorf("it cannot be set up again: %v", err)
		}
	})
}

// A kubelet says FailedMount on a pod that runs when its files cannot be renewed.
func TestThatFilesCannotBeRenewedIsSaidOnThePodAndInWhatExplainsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.set.deps.Stale = NewStale(f.events)
		ctx, stop := f.runs(t)
		defer stop()
		f.objects.setMap("cm", map[string]string{"k": "old"})
		f.objects.setMap("stays", map[string]string{"k": "v"})
		if err := f.set.Setup(ctx, podWith(configMapVolume("v", "cm"), configMapVolume("w", "stays"))); err != nil {
			t.Fatal(err)
		}
		f.objects.mu.Lock()
		delete(f.objects.maps, "ns/cm")
		f.objects.mu.Unlock()
		f.set.ObjectChanged([]types.UID{"uid-1"})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		const why = `MountVolume.SetUp failed for volume "v" : configmap "cm" not found`
		got := f.events.all()
		if n := len(got); n < 2 || n > 6 || got[0] != "p: FailedMount: "+why {
			t.Errorf("%d events in ten minutes: %q", n, got)
		}
		all := f.set.deps.Stale.Of("uid-1")
		if len(all) != 1 || all[0].Volume != "v" || all[0].Why != why || time.Since(all[0].Since) < 9*time.Minute || time.Until(all[0].Retry) <= 0 || time.Until(all[0].Retry) > lastRetry {
			t.Errorf("not up to date are %+v", all)
		}
		if got := f.files(t, "v")["k"]; got != "old" {
			t.Errorf("the file has %q", got)
		}
		f.objects.setMap("cm", map[string]string{"k": "new"})
		f.set.ObjectChanged([]types.UID{"uid-1"})
		time.Sleep(time.Second)
		synctest.Wait()
		if all := f.set.deps.Stale.Of("uid-1"); len(all) != 0 || f.files(t, "v")["k"] != "new" {
			t.Errorf("with its ConfigMap there, not up to date are %+v", all)
		}
	})
}
