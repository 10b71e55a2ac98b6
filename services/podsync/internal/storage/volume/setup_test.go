package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// CVE-2024-10220, CVE-2025-1767: gitRepo ran hooks and read the node's repositories.
func TestWhatThisNodeDoesNotMakeIsRefusedWithItsName(t *testing.T) {
	for want, source := range map[string]v1.VolumeSource{
		"gitRepo (removed from Kubernetes": {GitRepo: &v1.GitRepoVolumeSource{Repository: "/etc", Directory: "."}},
		"flexVolume (deprecated":           {FlexVolume: &v1.FlexVolumeSource{}},
	} {
		f := newFixture(t)
		err := f.set.Setup(t.Context(), podWith(v1.Volume{Name: "v", VolumeSource: source}))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "not supported") {
			t.Errorf("%s: %v", want, err)
		}
		if _, err := os.Stat(filepath.Join(f.root, "pods")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something was made: %v", want, err)
		}
	}
}

// TestAVolumeThatNoContainerMountsIsNotSetUp: the kubelet leaves it alone, whatever it is, until
// a container for debugging mounts it. A pod must not wait for what it does not use.
func TestAVolumeThatNoContainerMountsIsNotSetUp(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for name, v := range map[string]v1.Volume{
		"a configMap that is not there":    configMapVolume("v", "missing"),
		"a hostPath of another type":       hostPathVolume("v", missing, v1.HostPathDirectory),
		"a hostPath that would be made":    hostPathVolume("v", missing, v1.HostPathDirectoryOrCreate),
		"a server that does not answer":    nfsVolume("v", v1.NFSVolumeSource{Server: "s", Path: "/d"}),
		"a driver that is not there":       csiVolume("v", "missing.example"),
		"a kind that this node has not":    {Name: "v", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{}}},
		"an empty directory, nobody's use": emptyDirVolume("v"),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			pod := podWith(v, emptyDirVolume("used"))
			pod.Spec.Containers[0].VolumeMounts = pod.Spec.Containers[0].VolumeMounts[1:]
			if err := f.set.Setup(t.Context(), pod); err != nil {
				t.Error(err)
			}
			if _, err := f.set.refresh(t.Context(), pod.UID, 0); err != nil {
				t.Errorf("refreshed: %v", err)
			}
			plugins, err := names(filepath.Join(f.root, "pods/uid-1/volumes"))
			if left, dirErr := names(filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~empty-dir")); err != nil || dirErr != nil || len(plugins) != 1 || len(left) != 1 {
				t.Errorf("there are %q, %q, %v, %v", plugins, left, err, dirErr)
			}
			if _, err := os.Lstat(missing); !errors.Is(err, os.ErrNotExist) || len(f.mounts.Mounts()) != 0 {
				t.Errorf("something was made: %v, mounts %v", err, f.mounts.Mounts())
			}
			if path, is := f.set.HostPath(pod.UID, "v"); !is || path != "" {
				t.Errorf("it lies at %q", path)
			}
			if got := f.set.Volumes(pod.UID); len(got) != 1 || got[0].Name != "used" {
				t.Errorf("shown are %v", got)
			}
			if got := f.set.Wanted(); len(got) != 1 || got["kubernetes.io/empty-dir"] != 1 {
				t.Errorf("wanted are %v", got)
			}
			if err := f.set.Teardown(t.Context(), pod.UID); err != nil {
				t.Error(err)
			}
		})
	}
}

// debugged is a pod with a container for debugging that mounts a volume.
func debugged(pod *v1.Pod, volume string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{VolumeMounts: []v1.VolumeMount{{Name: volume}}}}}
	return pod
}

// TestAVolumeThatADebugContainerMountsIsWantedBeforeItIsThere: the pod waits for it.
func TestAVolumeThatADebugContainerMountsIsWantedBeforeItIsThere(t *testing.T) {
	f := newFixture(t)
	pod := podWith(configMapVolume("v", "missing"))
	pod.Spec.Containers[0].VolumeMounts = nil
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), debugged(pod, "v")); err == nil {
		t.Error("it is set up without its configMap")
	}
	if wanted, present := f.set.Wanted(), f.set.Present(); wanted["kubernetes.io/configmap"] != 1 || len(present) != 0 {
		t.Errorf("wanted are %v, present %v", wanted, present)
	}
}

// TestAVolumeThatNoContainerMountsIsNoneThatWasMounted, in the series of operations, and what
// explains the pod says once why it is not there.
func TestAVolumeThatNoContainerMountsIsNoneThatWasMounted(t *testing.T) {
	f := newFixture(t)
	reg := prometheus.NewRegistry()
	f.set.deps.Metrics = metrics.New(reg)
	pod := podWith(emptyDirVolume("v"))
	pod.Spec.Containers[0].VolumeMounts = nil
	line := timeline.NewBook().Open(pod.UID)
	ctx := timeline.Within(t.Context(), line.Begin("set up volumes", "", "", time.Now()))
	for range 2 {
		if err := f.set.Setup(ctx, pod); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := testutil.GatherAndCount(reg, "storage_operation_duration_seconds"); n != 0 || err != nil {
		t.Errorf("%d operations were counted, %v", n, err)
	}
	notes := slices.DeleteFunc(line.Read().Entries, func(e timeline.Entry) bool { return e.Running })
	if len(notes) != 1 || notes[0].What != "volume is not set up" || notes[0].Object != "v" || notes[0].Detail != "no container mounts it" || notes[0].Count != 1 {
		t.Errorf("noted are %+v", notes)
	}
}

func TestAVolumeThatADebugContainerMountsIsSetUpForIt(t *testing.T) {
	f := newFixture(t)
	pod := podWith(emptyDirVolume("v"))
	pod.Spec.Containers[0].VolumeMounts = nil
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod = debugged(pod, "v")
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if path, is := f.set.HostPath(pod.UID, "v"); !is || path == "" {
		t.Errorf("it lies at %q", path)
	}
}

// TestVolumesOfADriverThatHangsTakeNoOthersPlace: behind sixteen of them comes what podsync
// makes by itself, and the volume of another driver.
func TestVolumesOfADriverThatHangsTakeNoOthersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hangsAtFirst{fakeDriver: fakeDriver{}, hung: "a"}
		f := withCSI(t, d)
		f.set.deps.Pods = nil // nobody tries again
		f.objects.setMap("cm", map[string]string{"k": "v"})
		pod := podWith(slices.Concat(csiVolumes("a", 2*atOnce), csiVolumes("b", 1), []v1.Volume{configMapVolume("files", "cm")})...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := f.set.Setup(ctx, pod)
		failed := podstate.VolumeErrors(nil)
		if !errors.As(err, &failed) || len(failed) != 2*atOnce {
			t.Errorf("of the others %d have failed: %v", len(failed)-2*atOnce, err)
		}
		for _, name := range []string{"files", "b-0"} {
			if _, up := f.set.HostPath("uid-1", name); !up {
				t.Errorf("volume %s is not set up", name)
			}
		}
		d.mu.Lock()
		if d.most > atOnce {
			t.Errorf("the driver was asked for %d at once", d.most)
		}
		d.mu.Unlock()
		if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
			t.Error(err)
		}
	})
}

// hangsAtFirst is a driver that is asked by two names, one of which hangs.
type hangsAtFirst struct {
	fakeDriver

	hung        string
	asked, most int
}

func (d *hangsAtFirst) Setup(ctx context.Context, r Request) (Made, error) {
	if r.Volume.CSI.Driver != d.hung {
		return d.fakeDriver.Setup(ctx, r)
	}
	d.mu.Lock()
	d.asked++
	d.most = max(d.most, d.asked)
	d.mu.Unlock()
	<-ctx.Done()
	d.mu.Lock()
	d.asked--
	d.mu.Unlock()
	return Made{}, context.Cause(ctx)
}
