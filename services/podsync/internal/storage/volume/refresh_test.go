package volume

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
			if _, err := f.set.refresh(t.Context(), pod.UID); err != nil {
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
