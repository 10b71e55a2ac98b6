package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/reason"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// patient are CSI drivers that unpublish as package csi has it: the volumes of those that hang
// each take two minutes and fail, the others are asked. A volume is called as its driver, with
// a number behind.
type patient struct {
	fakeDriver

	began time.Time
	mu    sync.Mutex
	hangs map[string]bool
	away  map[string]bool
	ended map[string]time.Duration // volumes that are gone, since when
	tries map[string][]time.Duration
}

func newPatient(hangs ...string) *patient {
	d := &patient{hangs: map[string]bool{}, away: map[string]bool{}, ended: map[string]time.Duration{}, tries: map[string][]time.Duration{}}
	for _, name := range hangs {
		d.hangs[name] = true
	}
	return d
}

func (d *patient) DriverOf(dir string) string {
	driver, _, _ := strings.Cut(filepath.Base(dir), "-")
	return driver
}

func (d *patient) Knows(string) bool { return true }

func (d *patient) Teardown(ctx context.Context, v Remains) error {
	driver := d.DriverOf(v.Dir)
	d.mu.Lock()
	hangs, away := d.hangs[driver], d.away[driver]
	d.tries[v.Name] = append(d.tries[v.Name], time.Since(d.began))
	d.mu.Unlock()
	if away {
		return errors.New("not found in the list of registered CSI drivers")
	}
	if hangs {
		limited, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		<-limited.Done()
		return context.Cause(limited)
	}
	if err := d.fakeDriver.Teardown(ctx, v); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended[v.Name] = time.Since(d.began)
	return nil
}

// csiVolumes are so many of a driver.
func csiVolumes(driver string, many int) (all []v1.Volume) {
	for i := range many {
		all = append(all, csiVolume(fmt.Sprintf("%s-%d", driver, i), driver))
	}
	return all
}

// endsWith sets a pod with volumes up and begins its end.
func (d *patient) endsWith(t *testing.T, volumes ...v1.Volume) (f *fixture, done chan error) {
	t.Helper()
	f = withCSI(t, d)
	if err := f.set.Setup(t.Context(), podWith(volumes...)); err != nil {
		t.Fatal(err)
	}
	d.began = time.Now()
	done = make(chan error, 1)
	go func() { done <- f.set.Teardown(t.Context(), "uid-1") }()
	return f, done
}

func TestAtAPodsEndADriverThatHangsHoldsUpNoOtherVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPatient("a")
		nfs := v1.Volume{Name: "n", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}}}
		f, done := d.endsWith(t, slices.Concat(csiVolumes("a", 2*atOnce), csiVolumes("b", 1), []v1.Volume{emptyDirVolume("e"), nfs})...)
		synctest.Wait()
		if took, gone := d.ended["b-0"]; !gone || took > time.Second {
			t.Errorf("the volume of the driver that answers is gone: %v, after %v", gone, took)
		}
		for _, dir := range []string{f.set.volumeDir("uid-1", pluginEmptyDir, "e"), f.set.volumeDir("uid-1", pluginNFS, "n")} {
			if _, err := os.Lstat(dir); err == nil {
				t.Errorf("%s waits for the driver", dir)
			}
		}
		if err := <-done; err == nil {
			t.Error("no error, though a driver hangs")
		}
		if took := time.Since(d.began); took > 5*time.Minute {
			t.Errorf("what 32 volumes wait for is known after %v", took)
		}
	})
}

// The one that hangs is tried for two minutes, and meanwhile its driver is there anew.
func TestAVolumeThatCannotBeUnmountedIsTriedAgainWhileAnotherHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPatient("a")
		d.away["b"] = true
		f, done := d.endsWith(t, append(csiVolumes("a", 1), csiVolumes("b", 1)...)...)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(d.tries["b-0"]); n < 4 || n > 6 {
			t.Errorf("it was tried %d times in 10 s, not with a back-off of its own: %v", n, d.tries["b-0"])
		}
		d.mu.Lock()
		delete(d.away, "b")
		d.mu.Unlock()
		f.set.MayWork([]types.UID{"uid-1", "unknown"})
		synctest.Wait()
		if took := d.ended["b-0"]; took != 10*time.Second {
			t.Errorf("once its driver had come, it went after %v", took)
		}
		if err := <-done; err == nil || strings.Contains(err.Error(), "registered") {
			t.Errorf("what is left: %v", err)
		}
	})
}

func TestWhenAllThatIsLeftHasFailedThePlannerSaysWhenItIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPatient()
		d.away["a"], d.away["b"] = true, true
		_, done := d.endsWith(t, append(csiVolumes("a", 2), csiVolumes("b", 1)...)...)
		err := <-done
		if n := strings.Count(fmt.Sprint(err), "registered"); n != 3 || time.Since(d.began) > 0 {
			t.Errorf("%d volumes have failed after %v: %v", n, time.Since(d.began), err)
		}
		if n := len(d.tries["a-0"]); n != 1 {
			t.Errorf("it was tried %d times", n)
		}
	})
}

func TestWhatIsBeingUnmountedAndHowItFailedIsShownMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPatient("a")
		d.away["b"] = true
		f := withCSI(t, d)
		if err := f.set.Setup(t.Context(), podWith(append(csiVolumes("a", 1), csiVolumes("b", 1)...)...)); err != nil {
			t.Fatal(err)
		}
		line := timeline.NewBook().Open("uid-1")
		ctx := timeline.Within(t.Context(), line.Begin("tear down volumes", "", "", time.Now()))
		done := make(chan error, 1)
		go func() { done <- f.set.Teardown(ctx, "uid-1") }()
		time.Sleep(time.Minute)
		got := map[string]string{}
		for _, r := range line.Read().Running {
			got[r.Object] = r.What + ": " + r.Detail
		}
		if a := got["a-0"]; a != "unmount volume: kubernetes.io/csi:a" {
			t.Errorf("of the one that hangs is said %q", a)
		}
		if b := got["b-0"]; !strings.HasPrefix(b, timeline.UnmountAgain) || !strings.Contains(b, "registered") {
			t.Errorf("of the one that fails is said %q", b)
		}
		<-done
	})
}

func TestASubPathThatCannotBeUnmountedKeepsNoOtherVolumeOfThePod(t *testing.T) {
	d := &fakeDriver{}
	f := withCSI(t, d)
	pod := podWith(csiVolume("w", "b.example"), emptyDirVolume("e"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	at, err := f.set.SubPath(t.Context(), pod, "c", 0, "e", "sub")
	if err != nil {
		t.Fatal(err)
	}
	stuck := true
	f.mounts.Fail = func(call, target string) error {
		if stuck && target == at && call == "unmount" {
			return errors.New("its server does not answer")
		}
		return nil
	}
	fails(t, f.set.Teardown(t.Context(), "uid-1"), "tear down the volumes of pod uid-1: its server does not answer")
	if !slices.Contains(d.calls, "teardown uid-1/w") {
		t.Errorf("the CSI driver's volume is not taken down; calls: %v", d.calls)
	}
	if _, err := os.Lstat(f.set.volumeDir("uid-1", pluginEmptyDir, "e")); err != nil {
		t.Errorf("the volume of the subPath went before it: %v", err)
	}
	stuck = false
	f.set.MayWork([]types.UID{"uid-1"})
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(f.set.podDir("uid-1"), subPathsDir)); err == nil {
		t.Error("the directory of the subPaths is left")
	}
}

// TestAClaimsVolumeGoesAfterWhatContainersWereShownOfIt: while that is mounted its disk is in
// use. In the pod's spec it is called otherwise than its directory.
func TestAClaimsVolumeGoesAfterWhatContainersWereShownOfIt(t *testing.T) {
	f, _ := withAttacher(t)
	f.bind("c", "pv", csiPV())
	pod := podWith(claimVolume("v", "c"), emptyDirVolume("pv"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	at, err := f.set.SubPath(t.Context(), pod, "c", 0, "v", "sub")
	if err != nil {
		t.Fatal(err)
	}
	f.mounts.Fail = func(call, target string) error {
		if target == at && strings.HasPrefix(call, "unmount") {
			return errors.New("busy")
		}
		return nil
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err == nil {
		t.Fatal("no error")
	}
	if mounted, err := f.mounts.Mounted(filepath.Join(f.set.volumeDir("uid-1", pluginCSI, "pv"), "mount")); err != nil || !mounted {
		t.Errorf("the volume is mounted still: %v, %v", mounted, err)
	}
	if _, err := os.Lstat(f.set.volumeDir("uid-1", pluginEmptyDir, "pv")); err == nil {
		t.Error("the pod's own volume of that name waits for the claim's")
	}
}

// TestWhoHasWaitedForADriverThatHungIsTriedAgainWhenThatIsBack, whether the driver was asked or a
// place was waited for; another one hangs all the while.
func TestWhoHasWaitedForADriverThatHungIsTriedAgainWhenThatIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPatient("a", "b")
		f, done := d.endsWith(t, slices.Concat(csiVolumes("a", atOnce+1), csiVolumes("b", 2*atOnce))...)
		time.Sleep(119 * time.Second)
		d.mu.Lock()
		d.away["a"], d.hangs["a"] = true, false
		d.mu.Unlock()
		time.Sleep(61 * time.Second)
		d.mu.Lock()
		delete(d.away, "a")
		d.mu.Unlock()
		f.set.MayWork([]types.UID{"uid-1"})
		synctest.Wait()
		d.mu.Lock()
		if n := len(d.ended); n != atOnce+1 {
			t.Errorf("of %d volumes of the driver that is back %d are gone", atOnce+1, n)
		}
		d.mu.Unlock()
		if err := <-done; err == nil {
			t.Error("no error, though a driver hangs")
		}
	})
}

// What fails in the same way is not told anew.
func TestTheSameFailuresOfSubPathsAreTheSameError(t *testing.T) {
	f := newFixture(t)
	pod := podWith()
	for i := range 8 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{
			Name: fmt.Sprintf("h%d", i), VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}},
		})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: fmt.Sprintf("h%d", i)})
	}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	for i, v := range pod.Spec.Volumes {
		if _, err := f.set.SubPath(t.Context(), pod, "c", i, v.Name, "sub"); err != nil {
			t.Fatal(err)
		}
	}
	f.mounts.Fail = func(call, target string) error {
		if strings.HasPrefix(call, "unmount") && strings.Contains(target, subPathsDir) {
			return errors.New("busy: " + target)
		}
		return nil
	}
	said := map[string]bool{}
	for range 10 {
		said[fmt.Sprint(f.set.Teardown(t.Context(), pod.UID))] = true
	}
	if len(said) != 1 || said["<nil>"] {
		t.Errorf("%d texts: %v", len(said), said)
	}
}

// One that has failed for long is tried every two minutes; who has just failed does not wait
// for that, nor is the other tried with it.
func TestEachVolumeThatCannotBeUnmountedHasABackOffOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPatient("b")
		d.away["a"] = true
		f, done := d.endsWith(t, append(csiVolumes("a", 1), csiVolumes("b", 1)...)...)
		again := func() time.Duration {
			err := <-done
			at := reason.RetryAt(err)
			if err == nil || !at.After(time.Now()) {
				t.Fatalf("%v, to be tried again in %s", err, time.Until(at))
			}
			return time.Until(at)
		}
		again() // Meanwhile a has failed many times.
		d.mu.Lock()
		d.away["b"], d.hangs["b"], d.tries = true, false, map[string][]time.Duration{}
		d.mu.Unlock()
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			go func() { done <- f.set.Teardown(t.Context(), "uid-1") }()
			time.Sleep(again())
		}
		if a, b := len(d.tries["a-0"]), len(d.tries["b-0"]); a > 1 || b < 4 || b > 6 {
			t.Errorf("in 10 s the one that had failed for two minutes was tried %d times, the other %d times", a, b)
		}
		d.mu.Lock()
		clear(d.away)
		d.mu.Unlock()
		f.set.MayWork([]types.UID{"uid-1"})
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			t.Errorf("their drivers have come: %v", err)
		}
	})
}

// Each has its own time by then, and each time would be that of all of them.
func TestVolumesThatHaveFailedTogetherAreTriedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newPatient()
		d.away["a"] = true
		f, done := d.endsWith(t, csiVolumes("a", 40)...)
		teardowns := 0
		for time.Since(d.began) < time.Hour {
			time.Sleep(time.Until(reason.RetryAt(<-done)))
			go func() { done <- f.set.Teardown(t.Context(), "uid-1") }()
			teardowns++
		}
		<-done
		if tries := len(d.tries["a-7"]); tries < 30 || tries > 60 || teardowns > 60 {
			t.Errorf("in an hour %d Teardowns tried one of them %d times", teardowns, tries)
		}
		d.mu.Lock()
		clear(d.away)
		d.mu.Unlock()
		f.set.MayWork([]types.UID{"uid-1"})
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			t.Errorf("their driver has come: %v", err)
		}
	})
}
