package volume

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestOneNamespaceWhoseVolumesTakeLongLeavesRefreshesToOthers: the volumes of a pod
// may name thousands of objects, which takes minutes to read, and who may write one of
// them has all of them made anew as often as he likes. Tokens are renewed by the same
// hands.
func TestOneNamespaceWhoseVolumesTakeLongLeavesRefreshesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := f.runs(t)
		f.objects.setMap("cm", map[string]string{"k": "old"})
		f.objects.maps["theirs/cm"] = &v1.ConfigMap{Data: map[string]string{"k": "old"}}
		if err := f.set.Setup(ctx, podWith(configMapVolume("v", "cm"))); err != nil {
			t.Fatal(err)
		}
		var theirs []types.UID
		for i := range 20 {
			pod := podWith(configMapVolume("v", "cm"))
			pod.Namespace, pod.UID = "theirs", types.UID(fmt.Sprintf("theirs-%d", i))
			if err := f.set.Setup(ctx, pod); err != nil {
				t.Fatal(err)
			}
			theirs = append(theirs, pod.UID)
		}
		end := f.objects.slowDown("theirs")
		f.objects.maps["theirs/cm"] = &v1.ConfigMap{Data: map[string]string{"k": "new"}}
		f.set.ObjectChanged(theirs)
		synctest.Wait()
		start := time.Now()
		f.objects.setMap("cm", map[string]string{"k": "new"})
		f.set.ObjectChanged([]types.UID{"uid-1"})
		synctest.Wait()
		if got := f.files(t, "v")["k"]; got != "new" {
			t.Errorf("while volumes of another namespace are set up, the file holds %q", got)
		}
		end()
		synctest.Wait()
		for _, uid := range theirs {
			dir, _ := f.set.HostPath(uid, "v")
			if got := readFiles(t, dir)["k"]; got != "new" || time.Since(start) != 0 {
				t.Errorf("%s holds %q after %v: nobody waits for a timer", uid, got, time.Since(start))
			}
		}
		if n := len(f.set.busy) + len(f.set.parked); n != 0 {
			t.Errorf("%v count as busy and %v wait, though nothing is under way", f.set.busy, f.set.parked)
		}
		stop()
	})
}

// TestAPodThatWaitsForAHandGetsOneWhenThoseBeforeItEnd: pods that wait may be torn
// down meanwhile, and then have no refresh whose end wakes the next.
func TestAPodThatWaitsForAHandGetsOneWhenThoseBeforeItEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := f.runs(t)
		f.objects.maps["theirs/cm"] = &v1.ConfigMap{Data: map[string]string{"k": "old"}}
		var theirs []types.UID
		for i := range 12 {
			pod := podWith(configMapVolume("v", "cm"))
			pod.Namespace, pod.UID = "theirs", types.UID(fmt.Sprintf("theirs-%02d", i))
			if err := f.set.Setup(ctx, pod); err != nil {
				t.Fatal(err)
			}
			theirs = append(theirs, pod.UID)
		}
		end := f.objects.slowDown("theirs")
		f.objects.maps["theirs/cm"] = &v1.ConfigMap{Data: map[string]string{"k": "new"}}
		f.set.ObjectChanged(theirs)
		synctest.Wait()
		f.set.mu.Lock()
		waiting := slices.Clone(f.set.parked["theirs"]) // which of them have a hand is chance
		f.set.mu.Unlock()
		if len(waiting) != 9 {
			t.Fatalf("%v wait", waiting)
		}
		last := waiting[8]
		for _, uid := range waiting[:8] {
			if err := f.set.Teardown(ctx, uid); err != nil {
				t.Fatal(err)
			}
		}
		end()
		synctest.Wait()
		dir, _ := f.set.HostPath(last, "v")
		if got := readFiles(t, dir)["k"]; got != "new" {
			t.Errorf("the last of those that waited holds %q, though nothing is under way", got)
		}
		if n := len(f.set.busy) + len(f.set.parked); n != 0 {
			t.Errorf("%v count as busy and %v wait, though nothing is under way", f.set.busy, f.set.parked)
		}
		stop()
	})
}
