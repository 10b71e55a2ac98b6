package scsi

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux/selinuxtest"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// eachKind runs a test with a disk of a target and with one of a fabric, on a node with SELinux;
// all is the gate for other access modes.
func eachKind(t *testing.T, all bool, do func(t *testing.T, b *labelBench)) {
	t.Helper()
	for kind, of := range map[string]v1.PersistentVolumeSource{
		"iscsi": {ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: iqn, Lun: 1}},
		"fc":    {FC: &v1.FCVolumeSource{WWIDs: []string{"MAKER_0123"}}},
	} {
		t.Run(kind, func(t *testing.T) {
			b := &labelBench{bench: newBench(t), kind: kind, of: of, counted: prometheus.NewRegistry(), kernel: map[string]string{}}
			b.make("target.json", `{"1":"sd"}`)
			b.make("sys/class/scsi_host/host0/scan")
			makeDisk(b.host, "sda", "by-id/scsi-MAKER_0123")
			b.all, b.metrics = all, metrics.New(b.counted)
			b.begins()
			do(t, b)
		})
	}
}

// labelBench is a machine with one disk and SELinux.
type labelBench struct {
	*bench
	kind    string
	of      v1.PersistentVolumeSource
	all     bool
	metrics *metrics.Metrics
	counted *prometheus.Registry
	kernel  map[string]string // how the kernel writes a label, where not as it was asked for it
}

// begins is a new process: nothing is in memory.
func (b *labelBench) begins() {
	b.restart()
	b.cfg.SELinuxMount, b.deps.SELinux, b.deps.Metrics = b.all, selinuxtest.Policy(true), b.metrics
	b.deps.Context = b.context
}

// context is the label that what is mounted at a path has, or what is bound there.
func (b *labelBench) context(path string) (string, error) {
	of := path
	if source := b.mounts.Source(path); b.mounts.Source(source) != "" {
		of = source
	}
	for _, option := range b.mounts.Options(of) {
		if label, is := strings.CutPrefix(option, "context="); is {
			label = strings.Trim(label, `"`)
			return cmp.Or(b.kernel[label], label), nil
		}
	}
	return "", nil
}

// mountAsKubelet mounts the disk in its place, and for the pods, as a kubelet has.
func (b *labelBench) mountAsKubelet(label string, all ...volume.Request) {
	b.t.Helper()
	at := b.place(all[0])
	if err := b.mounts.Device(b.t.Context(), filepath.Join(b.host, "dev/sda"), at, "ext4", []string{selinux.MountOption(label)}); err != nil {
		b.t.Fatal(err)
	}
	for _, r := range all {
		if err := errors.Join(os.MkdirAll(r.Dir, 0o750), b.mounts.Bind(at, r.Dir)); err != nil {
			b.t.Fatal(err)
		}
	}
}

// wants is the disk for a pod whose containers have levels.
func (b *labelBench) wants(uid string, mode v1.PersistentVolumeAccessMode, levels ...string) volume.Request {
	r := b.claimed(uid, "pv", b.of, v1.PersistentVolumeFilesystem)
	r.PV.Spec.AccessModes, r.PV.Spec.MountOptions = []v1.PersistentVolumeAccessMode{mode}, []string{"noatime"}
	for _, level := range levels {
		r.Pod.Spec.Containers = append(r.Pod.Spec.Containers, v1.Container{
			VolumeMounts:    []v1.VolumeMount{{Name: r.Volume.Name}},
			SecurityContext: &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}},
		})
	}
	return r
}

// has wants a pod to get the disk, with a label or without.
func (b *labelBench) has(r volume.Request, labelled bool) {
	b.t.Helper()
	if err := b.Attach(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
	if made, err := b.Setup(b.t.Context(), r); err != nil || made.Path != r.Dir || made.Labelled != labelled {
		b.t.Fatalf("%+v, %v", made, err)
	}
}

// place is where the disk is for all pods.
func (b *labelBench) place(r volume.Request) string {
	b.t.Helper()
	w, err := wantedBy(r)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.placeOf(w.disk, false).path
}

// ends takes all down, after which nothing is left, also in memory.
func (b *labelBench) ends(all ...volume.Request) {
	b.t.Helper()
	for _, r := range all {
		b.takeDown(r)
	}
	b.settleAll()
	b.bare()
	if len(b.labels) != 0 {
		b.t.Errorf("known are %v", b.labels)
	}
}

func TestADisksFilesystemIsMountedWithItsPodsLabel(t *testing.T) {
	eachKind(t, false, func(t *testing.T, b *labelBench) {
		r := b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1,c2")
		b.has(r, true)
		if got, want := b.mounts.Options(b.place(r)), []string{"noatime", `context="` + selinuxtest.Label("s0:c1,c2") + `"`}; !slices.Equal(got, want) {
			t.Errorf("mounted with %q, want %q", got, want)
		}
		if got, want := selinuxtest.Counted(t, b.counted), []string{"volumes_admitted RWOP kubernetes.io/" + b.kind}; !slices.Equal(got, want) {
			t.Errorf("counted %q, want %q", got, want)
		}
		b.begins()
		b.has(r, true) // as the run before has mounted it
		b.ends(r)
	})
}

func TestADisksFilesystemIsMountedAsEverWhereNoLabelIsTo(t *testing.T) {
	recursive := v1.SELinuxChangePolicyRecursive
	for name, change := range map[string]func(b *labelBench, r *volume.Request){
		"no SELinux": func(b *labelBench, _ *volume.Request) { b.deps.SELinux = selinuxtest.Policy(false) },
		"no policy":  func(b *labelBench, _ *volume.Request) { b.deps.SELinux = nil },
		"an access mode for many": func(_ *labelBench, r *volume.Request) {
			r.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		},
		"the pod does not want it": func(_ *labelBench, r *volume.Request) {
			r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxChangePolicy: &recursive}
		},
		"nobody says a label": func(_ *labelBench, r *volume.Request) { r.Pod.Spec.Containers[0].SecurityContext = nil },
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, false, func(t *testing.T, b *labelBench) {
				r := b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1")
				change(b, &r)
				b.has(r, false)
				if got := b.mounts.Options(b.place(r)); !slices.Equal(got, []string{"noatime"}) {
					t.Errorf("mounted with %q", got)
				}
				b.ends(r)
			})
		})
	}
}

// TestADiskInAPodsOwnSpecIsMountedWithNoLabel, also with the gate.
func TestADiskInAPodsOwnSpecIsMountedWithNoLabel(t *testing.T) {
	eachKind(t, true, func(t *testing.T, b *labelBench) {
		of := source(1)
		if b.kind == fc {
			of = v1.VolumeSource{FC: b.of.FC}
		}
		r := b.inline("uid-1", "v", of)
		r.Pod.Spec = b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1").Pod.Spec
		b.has(r, false)
		if got := b.mounts.Options(b.place(r)); slices.ContainsFunc(got, func(o string) bool { return strings.HasPrefix(o, "context") }) {
			t.Errorf("mounted with %q", got)
		}
		b.ends(r)
	})
}

func TestPodsThatWantADiskWithSeveralLabelsHaveItOneAfterTheOther(t *testing.T) {
	eachKind(t, true, func(t *testing.T, b *labelBench) {
		first, beside, second := b.wants("uid-1", v1.ReadWriteMany, "s0:c1"), b.wants("uid-2", v1.ReadWriteMany, "s0:c1"), b.wants("uid-3", v1.ReadWriteMany, "s0:c2")
		b.has(first, true)
		b.has(beside, true)
		conflict := `conflicting SELinux labels of volume pv: "` + selinuxtest.Label("s0:c1") + `" and "` + selinuxtest.Label("s0:c2") + `"`
		if _, err := b.Setup(t.Context(), second); err == nil || err.Error() != conflict {
			t.Errorf("%v, want %s", err, conflict)
		}
		if err := b.Conflict(t.Context(), second); err == nil || err.Error() != conflict {
			t.Errorf("%v, want %s", err, conflict)
		}
		if err := b.Conflict(t.Context(), beside); err != nil {
			t.Errorf("with the same label: %v", err)
		}
		if got, want := selinuxtest.Counted(t, b.counted), []string{"volume_context_mismatch_errors RWX kubernetes.io/" + b.kind, "volumes_admitted RWX kubernetes.io/" + b.kind}; !slices.Equal(got, want) {
			t.Errorf("counted %q, want %q", got, want)
		}
		b.takeDown(first)
		b.takeDown(beside)
		b.has(second, true) // before it was settled
		if got := b.mounts.Options(b.place(second)); !slices.Contains(got, `context="`+selinuxtest.Label("s0:c2")+`"`) {
			t.Errorf("mounted with %q", got)
		}
		b.ends(second)
	})
}

// TestADiskThatAnotherPodStillHasIsNotMountedAnew: nothing but what is mounted knows of it after a
// restart.
func TestADiskThatAnotherPodStillHasIsNotMountedAnew(t *testing.T) {
	eachKind(t, true, func(t *testing.T, b *labelBench) {
		first, second := b.wants("uid-1", v1.ReadWriteMany, "s0:c1"), b.wants("uid-2", v1.ReadWriteMany, "s0:c2")
		b.has(first, true)
		b.begins()
		const want = `waiting for unmount of volume "pv", because it is already mounted to a different pod with a different SELinux label`
		if _, err := b.Setup(t.Context(), second); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
		if b.mounts.Source(second.Dir) != "" {
			t.Error("the second pod has it")
		}
		// Of the pod that has it, it stays as it is, whatever the pod says now.
		b.has(b.wants("uid-1", v1.ReadWriteMany, "s0:c9"), true)
		if got := b.mounts.Options(b.place(first)); !slices.Contains(got, `context="`+selinuxtest.Label("s0:c1")+`"`) {
			t.Errorf("mounted with %q", got)
		}
		b.ends(first)
	})
}

// TestADiskThatAnotherAgentHasMountedHasTheLabelThatTheKernelKnows, unless the PersistentVolume
// asks for that itself.
func TestADiskThatAnotherAgentHasMountedHasTheLabelThatTheKernelKnows(t *testing.T) {
	eachKind(t, true, func(t *testing.T, b *labelBench) {
		r := b.wants("uid-1", v1.ReadWriteMany, "s0:c1")
		at := b.place(r)
		if err := os.MkdirAll(at, 0o750); err != nil {
			t.Fatal(err)
		}
		b.mountAsKubelet(selinuxtest.Label("s0:c1"), r)
		b.has(r, true)
		beside := b.wants("uid-2", v1.ReadWriteMany, "s0:c1")
		b.has(beside, true)
		other := b.wants("uid-3", v1.ReadWriteMany)
		b.takeDown(r)
		b.takeDown(beside)
		other.PV.Spec.MountOptions = []string{`context="` + selinuxtest.Label("s0:c1") + `"`}
		b.has(other, false)
		if b.mounts.Source(at) != filepath.Join(b.host, "dev/sda") || b.read("asked") != "" {
			t.Errorf("it is mounted anew from %s, asked %q", b.mounts.Source(at), b.read("asked"))
		}
	})
}

// TestADiskThatAnotherAgentHasMountedInItsPlaceHasItsLabel, whatever a record says of what was
// mounted there before.
func TestADiskThatAnotherAgentHasMountedInItsPlaceHasItsLabel(t *testing.T) {
	eachKind(t, true, func(t *testing.T, b *labelBench) {
		first, second, third := b.wants("uid-1", v1.ReadWriteMany, "s0:c1"), b.wants("uid-2", v1.ReadWriteMany, "s0:c2"), b.wants("uid-3", v1.ReadWriteMany, "s0:c1")
		b.has(first, true)
		b.takeDown(first)
		if err := b.mounts.Unmount(b.place(first)); err != nil {
			t.Fatal(err)
		}
		b.mountAsKubelet(selinuxtest.Label("s0:c2"), second)
		b.begins()
		b.has(second, true)
		if label, is := b.labelKept(&wanted{dir: second.Dir}, place{path: b.place(second)}); !is || label.Is != selinuxtest.Label("s0:c2") {
			t.Errorf("it has %+v, %v", label, is)
		}
		b.begins()
		const want = `waiting for unmount of volume "pv", because it is already mounted to a different pod with a different SELinux label`
		if _, err := b.Setup(t.Context(), third); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
		b.takeDown(second)
		b.has(third, true)
		if got := b.mounts.Options(b.place(third)); !slices.Contains(got, selinux.MountOption(selinuxtest.Label("s0:c1"))) {
			t.Errorf("mounted with %q", got)
		}
		b.ends(third)
	})
}

// TestADisksLabelIsThePodsHoweverTheKernelWritesIt: it is not mounted anew.
func TestADisksLabelIsThePodsHoweverTheKernelWritesIt(t *testing.T) {
	eachKind(t, true, func(t *testing.T, b *labelBench) {
		asked := selinuxtest.Label("s0:c9,c2,c1,c0")
		b.kernel[asked] = selinuxtest.Label("s0:c0.c2,c9")
		first, second := b.wants("uid-1", v1.ReadWriteMany, "s0:c9,c2,c1,c0"), b.wants("uid-2", v1.ReadWriteMany, "s0:c9,c2,c1,c0")
		b.has(first, true)
		b.begins()
		b.has(second, true)
		b.has(first, true)
		if label, is := b.labelKept(&wanted{dir: first.Dir}, place{path: b.place(first)}); !is || label.Is != asked {
			t.Errorf("it has %+v, %v", label, is)
		}
		b.ends(first, second)
	})
}

// TestWhatADiskIsWantedWithIsCountedOnce, however often it is looked whether it is there.
func TestWhatADiskIsWantedWithIsCountedOnce(t *testing.T) {
	eachKind(t, false, func(t *testing.T, b *labelBench) {
		first, second := b.wants("uid-1", v1.ReadWriteMany, "s0:c1"), b.wants("uid-2", v1.ReadWriteMany, "s0:c2")
		for range 3 {
			b.has(first, false)
			b.has(second, false)
		}
		families, err := b.counted.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "volume_manager_selinux_volume_context_mismatch_warnings_total" {
				continue
			}
			for _, m := range f.GetMetric() {
				if got := m.GetGauge().GetValue(); got != 1 {
					t.Errorf("counted %v times", got)
				}
			}
		}
		b.ends(first, second)
	})
}

// TestADiskKeepsItsLabelWhenAnotherOfItsTargetGoes: what was made for that is noted anew with it.
func TestADiskKeepsItsLabelWhenAnotherOfItsTargetGoes(t *testing.T) {
	eachKind(t, true, func(t *testing.T, b *labelBench) {
		if b.kind == fc {
			t.Skip("disks of a fabric have nothing in common")
		}
		b.make("target.json", `{"1":"sd","2":"sdx"}`)
		going, stays := b.inline("uid-1", "v", source(2)), b.wants("uid-2", v1.ReadWriteMany, "s0:c1")
		b.has(going, false)
		b.has(stays, true)
		b.takeDown(going)
		b.settleAll()
		b.begins()
		b.has(stays, true)
		b.ends(stays)
	})
}

func TestWhatIsWrongWithLabelsKeepsAPodFromADiskOfItsOwn(t *testing.T) {
	eachKind(t, false, func(t *testing.T, b *labelBench) {
		r := b.wants("uid-1", v1.ReadWriteOncePod, "s0:c1", "s0:c2")
		want := "multiple SELinux labels found: " + selinuxtest.Label("s0:c1") + "," + selinuxtest.Label("s0:c2")
		if _, err := b.Setup(t.Context(), r); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if got := selinuxtest.Counted(t, b.counted); !slices.Equal(got, []string{"pod_context_mismatch_errors RWOP"}) {
			t.Errorf("counted %q", got)
		}
		b.bare()
		b.has(b.wants("uid-1", v1.ReadWriteMany, "s0:c1", "s0:c2"), false)
		b.ends(r)
	})
}
