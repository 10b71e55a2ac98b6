package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux/selinuxtest"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// labels is a node with SELinux, whose driver mounts volumes with labels.
func labels(t *testing.T, all bool) (*bench, *prometheus.Registry) {
	t.Helper()
	b := newStaging(t, nil)
	yes := true
	b.cluster.driver.Spec.SELinuxMount = &yes
	counted := prometheus.NewRegistry()
	b.deps.SELinux, b.deps.Metrics, b.cfg.SELinuxMount = selinuxtest.Policy(true), metrics.New(counted), all
	return b, counted
}

// wants is a volume of a claim for a pod whose containers have levels.
func (b *bench) wants(uid types.UID, mode v1.PersistentVolumeAccessMode, levels ...string) volume.Request {
	r := b.claimOf(uid)
	r.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{mode}
	for _, level := range levels {
		r.Pod.Spec.Containers = append(r.Pod.Spec.Containers, v1.Container{
			VolumeMounts:    []v1.VolumeMount{{Name: r.Volume.Name}},
			SecurityContext: &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}},
		})
	}
	return r
}

func (b *bench) have(t *testing.T, r volume.Request) (volume.Made, error) {
	t.Helper()
	if err := b.Attach(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return b.Setup(t.Context(), r)
}

func TestAVolumeIsMountedWithItsPodsLabel(t *testing.T) {
	b, counted := labels(t, false)
	made, err := b.have(t, b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1,c2"))
	if err != nil || !made.Labelled {
		t.Fatal(made, err)
	}
	want := []string{"noatime", `context="u:object_r:container_file_t:s0:c1,c2"`}
	staged, published := b.driver.Staged()[0].GetVolumeCapability().GetMount(), b.driver.Published()[0].GetVolumeCapability().GetMount()
	if !slices.Equal(staged.GetMountFlags(), want) || !slices.Equal(published.GetMountFlags(), want) {
		t.Errorf("staged with %q, published with %q", staged.GetMountFlags(), published.GetMountFlags())
	}
	for _, dir := range []string{b.staging(), b.pvDir("uid-1")} { // as a kubelet reads it
		raw, err := os.ReadFile(filepath.Join(dir, "vol_data.json"))
		if err != nil || !strings.Contains(string(raw), `"seLinuxMountContext":"`+selinuxtest.Label("s0:c1,c2")+`"`) {
			t.Errorf("%s, %v", raw, err)
		}
	}
	if got := selinuxtest.Counted(t, counted); !slices.Equal(got, []string{"volumes_admitted RWOP kubernetes.io/csi/csi.example.com"}) {
		t.Errorf("counted %q", got)
	}
	if again, err := b.Setup(t.Context(), b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1,c2")); err != nil || again != made {
		t.Errorf("%+v, %v", again, err)
	}
	b.end(t, "uid-1")
	b.nothing(t)
}

func TestAVolumeIsMountedAsEverWhereNoLabelIsTo(t *testing.T) {
	for name, change := range map[string]func(b *bench, r volume.Request){
		"no SELinux":        func(b *bench, _ volume.Request) { b.deps.SELinux = selinuxtest.Policy(false) },
		"no policy":         func(b *bench, _ volume.Request) { b.deps.SELinux = nil },
		"the driver cannot": func(b *bench, _ volume.Request) { b.cluster.driver.Spec.SELinuxMount = nil },
		"an access mode for many": func(_ *bench, r volume.Request) {
			r.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		},
		"the pod does not want it": func(_ *bench, r volume.Request) { recursive(r.Pod) },
		"nobody says a label":      func(_ *bench, r volume.Request) { r.Pod.Spec.Containers[0].SecurityContext = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := labels(t, false)
			r := b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1")
			change(b, r)
			made, err := b.have(t, r)
			if flags := b.driver.Staged()[0].GetVolumeCapability().GetMount().GetMountFlags(); err != nil || made.Labelled || !slices.Equal(flags, []string{"noatime"}) {
				t.Errorf("%+v, %v, %q", made, err, flags)
			}
			raw, err := os.ReadFile(filepath.Join(b.staging(), "vol_data.json"))
			if err != nil || strings.Contains(string(raw), "seLinux") {
				t.Errorf("%s, %v", raw, err)
			}
		})
	}
}

// recursive has a pod want its files to be given their labels one by one.
func recursive(pod *v1.Pod) {
	policy := v1.SELinuxChangePolicyRecursive
	pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxChangePolicy: &policy}
}

func TestWhatIsWrongWithLabelsKeepsAPodFromAVolumeOfItsOwnAndIsCountedOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		levels         []string
		want           string
		refused, alike string // what is counted
		cause          podstate.VolumeCause
	}{
		"several labels": {[]string{"s0:c1", "s0:c2"}, "multiple SELinux labels found: " + selinuxtest.Label("s0:c1") + "," + selinuxtest.Label("s0:c2"), "pod_context_mismatch_errors RWOP", "pod_context_mismatch_warnings RWX", podstate.VolumeLabels},
		"no label":       {[]string{`s0",suid,x="`}, "failed to construct SELinux label from context", "container_errors RWOP", "container_warnings RWX", podstate.VolumeSpec},
	} {
		t.Run(name, func(t *testing.T) {
			b, counted := labels(t, false)
			_, err := b.have(t, b.wants("uid-1", v1.ReadWriteOncePod, c.levels...))
			if podstate.VolumeCauseOf(err) != c.cause || !strings.Contains(err.Error(), c.want) || len(b.driver.Calls()) != 0 {
				t.Errorf("%v, asked for %v", err, b.driver.Calls())
			}
			if got := selinuxtest.Counted(t, counted); !slices.Equal(got, []string{c.refused}) {
				t.Errorf("counted %q", got)
			}
			b.Forget("uid-1")
			b.nothing(t)

			b, counted = labels(t, false)
			if _, err := b.have(t, b.wants("uid-1", v1.ReadWriteMany, c.levels...)); err != nil {
				t.Error(err)
			}
			if got := selinuxtest.Counted(t, counted); !slices.Equal(got, []string{c.alike}) {
				t.Errorf("counted %q", got)
			}
		})
	}
}

func TestPodsThatWantAVolumeWithSeveralLabelsHaveItOneAfterTheOther(t *testing.T) {
	b, counted := labels(t, true)
	if _, err := b.have(t, b.wants("uid-1", v1.ReadWriteMany, "s0:c1")); err != nil {
		t.Fatal(err)
	}
	_, err := b.have(t, b.wants("uid-2", v1.ReadWriteMany, "s0:c2"))
	if want := `conflicting SELinux labels of volume pv: "` + selinuxtest.Label("s0:c1") + `" and "` + selinuxtest.Label("s0:c2") + `"`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := os.Lstat(b.pvDir("uid-2")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pod counts as one that has it: %v", err)
	}
	if got := selinuxtest.Counted(t, counted); !slices.Equal(got, []string{"volume_context_mismatch_errors RWX kubernetes.io/csi/csi.example.com", "volumes_admitted RWX kubernetes.io/csi/csi.example.com"}) {
		t.Errorf("counted %q", got)
	}
	b.end(t, "uid-1")
	if made, err := b.have(t, b.wants("uid-2", v1.ReadWriteMany, "s0:c2")); err != nil || !made.Labelled {
		t.Fatal(made, err)
	}
	staged := b.driver.Staged()
	if flags := staged[len(staged)-1].GetVolumeCapability().GetMount().GetMountFlags(); len(staged) != 2 || !slices.Contains(flags, `context="`+selinuxtest.Label("s0:c2")+`"`) {
		t.Errorf("staged %d times, at last with %q", len(staged), flags)
	}
	b.end(t, "uid-2")
	b.nothing(t)
}

// TestWhoWantsAVolumeForOnePodWithAnotherLabelThanWhoHasItIsToldSo: nobody who works on it is
// waited for.
func TestWhoWantsAVolumeForOnePodWithAnotherLabelThanWhoHasItIsToldSo(t *testing.T) {
	b, counted := labels(t, false)
	if _, err := b.have(t, b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1")); err != nil {
		t.Fatal(err)
	}
	other := b.wants("uid-2", v1.ReadWriteOncePod, "s0:c2")
	want := `conflicting SELinux labels of volume pv: "` + selinuxtest.Label("s0:c1") + `" and "` + selinuxtest.Label("s0:c2") + `"`
	if err := b.Conflict(t.Context(), other); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if got := selinuxtest.Counted(t, counted); !slices.Contains(got, "volume_context_mismatch_errors RWOP kubernetes.io/csi/csi.example.com") {
		t.Errorf("counted %q", got)
	}
	if err := b.Conflict(t.Context(), b.wants("uid-2", v1.ReadWriteOncePod, "s0:c1")); err != nil {
		t.Errorf("with the same label: %v", err)
	}
	w := b.wantedBy(other)
	_, leave, err := b.enter(t.Context(), w.id())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Conflict(t.Context(), other); err != nil {
		t.Errorf("while somebody works on it: %v", err)
	}
	leave()
	b.deps.SELinux = selinuxtest.Policy(false)
	if err := b.Conflict(t.Context(), other); err != nil {
		t.Errorf("without SELinux: %v", err)
	}
	b.end(t, "uid-1")
	b.Forget("uid-2")
	b.nothing(t)
}

// TestAVolumeThatAnotherPodStillHasIsNotStagedAnew: nothing but the disk knows of it after
// a restart.
func TestAVolumeThatAnotherPodStillHasIsNotStagedAnew(t *testing.T) {
	b, _ := labels(t, true)
	if _, err := b.have(t, b.wants("uid-1", v1.ReadWriteMany, "s0:c1")); err != nil {
		t.Fatal(err)
	}
	again := b.restarted(t)
	again.deps.SELinux, again.cfg.SELinuxMount = selinuxtest.Policy(true), true
	if err := again.Register(t.Context(), b.plugin); err != nil {
		t.Fatal(err)
	}
	b.Volumes = again
	_, err := b.have(t, b.wants("uid-2", v1.ReadWriteMany, "s0:c2"))
	if err == nil || !strings.Contains(err.Error(), `waiting for unmount of volume "pv", because it is already mounted to a different pod with a different SELinux label`) {
		t.Error(err)
	}
	if n := len(b.driver.Staged()); n != 1 {
		t.Errorf("staged %d times", n)
	}
	// Of the pod that has it, it stays as it is, whatever the pod says now.
	if made, err := b.have(t, b.wants("uid-1", v1.ReadWriteMany, "s0:c9")); err != nil || !made.Labelled {
		t.Errorf("%+v, %v", made, err)
	}
	staged := b.driver.Staged()
	if flags := staged[len(staged)-1].GetVolumeCapability().GetMount().GetMountFlags(); !slices.Contains(flags, `context="`+selinuxtest.Label("s0:c1")+`"`) {
		t.Errorf("staged with %q", flags)
	}
	b.end(t, "uid-1")
	b.Forget("uid-2")
	b.nothing(t)
}

// TestAVolumeThatWasStagedWithAnotherLabelIsUnstagedFirst: and a pod waits when that fails.
func TestAVolumeThatWasStagedWithAnotherLabelIsUnstagedFirst(t *testing.T) {
	b, _ := labels(t, false)
	broken := errors.New("device is busy")
	b.fault("NodePublishVolume", func(context.Context) error { return broken })
	if _, err := b.have(t, b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1")); err == nil {
		t.Fatal("it is published")
	}
	b.fault("NodePublishVolume", func(context.Context) error { return nil })
	if err := b.Teardown(t.Context(), volume.Remains{UID: "uid-1", Name: "pv", Dir: b.pvDir("uid-1")}); err != nil {
		t.Fatal(err)
	}
	r := b.wants("uid-2", v1.ReadWriteOncePod, "s0:c2")
	b.fault("NodeUnstageVolume", func(context.Context) error { return broken })
	if _, err := b.have(t, r); err == nil || !strings.Contains(err.Error(), "MountVolume.MountDevice") || !strings.Contains(err.Error(), "attacher.UnmountDevice failed") {
		t.Error(err)
	}
	b.fault("NodeUnstageVolume", func(context.Context) error { return nil })
	if made, err := b.have(t, r); err != nil || !made.Labelled {
		t.Errorf("%+v, %v", made, err)
	}
	raw, err := os.ReadFile(filepath.Join(b.staging(), "vol_data.json"))
	if err != nil || !strings.Contains(string(raw), selinuxtest.Label("s0:c2")) {
		t.Errorf("%s, %v", raw, err)
	}
	b.Forget("uid-1")
	b.end(t, "uid-2")
	b.nothing(t)
}

// TestWhatAVolumeIsWantedWithIsCountedOnce, however often it is published again.
func TestWhatAVolumeIsWantedWithIsCountedOnce(t *testing.T) {
	b, counted := labels(t, false)
	yes := true
	b.cluster.driver.Spec.RequiresRepublish = &yes
	b.cfg.Again = 5 * time.Millisecond
	first, second := b.wants("uid-1", v1.ReadWriteMany, "s0:c1"), b.wants("uid-2", v1.ReadWriteMany, "s0:c2")
	for _, r := range []volume.Request{first, second, second} {
		if _, err := b.have(t, r); err != nil {
			t.Fatal(err)
		}
	}
	b.publishedTimes(t, len(b.driver.Published())+6)
	families, err := counted.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != "volume_manager_selinux_volume_context_mismatch_warnings_total" || m.GetGauge().GetValue() == 0 {
				continue
			}
			if seen = true; m.GetGauge().GetValue() != 1 {
				t.Errorf("counted %v times", m.GetGauge().GetValue())
			}
		}
	}
	if !seen {
		t.Error("it is not counted that they want it with different labels")
	}
	b.end(t, "uid-1")
	b.end(t, "uid-2")
	b.nothing(t)
}

// TestAPodThatCannotBeTakenDownHasItsVolumesLabel: it is mounted with that still, and of a driver
// that does not stage nothing else says so.
func TestAPodThatCannotBeTakenDownHasItsVolumesLabel(t *testing.T) {
	b := newStaging(t, func(c *fakecsi.Config) { c.Can = nil })
	yes := true
	b.cluster.driver.Spec.SELinuxMount = &yes
	b.deps.SELinux, b.cfg.SELinuxMount = selinuxtest.Policy(true), true
	if _, err := b.have(t, b.wants("uid-1", v1.ReadWriteOnce, "s0:c1")); err != nil {
		t.Fatal(err)
	}
	b.fault("NodeUnpublishVolume", func(context.Context) error { return errors.New("busy") })
	if err := b.Teardown(t.Context(), volume.Remains{UID: "uid-1", Name: "pv", Dir: b.pvDir("uid-1")}); err == nil {
		t.Fatal("it is gone")
	}
	if _, err := b.have(t, b.wants("uid-2", v1.ReadWriteOnce, "s0:c2")); err == nil {
		t.Error("another pod has it with another label beside")
	}
	b.fault("NodeUnpublishVolume", nil)
	b.end(t, "uid-1")
	if _, err := b.have(t, b.wants("uid-2", v1.ReadWriteOnce, "s0:c2")); err != nil {
		t.Error(err)
	}
	b.end(t, "uid-2")
	b.nothing(t)
}
