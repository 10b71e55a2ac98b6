package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

func TestAVolumeOfAClaimIsTheHostsDirectoryThatItIsBoundTo(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	f.bind("c", "pv", hostPathPV(dir)).Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "77"}
	pod := podWith(claimVolume("v", "c"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if path, ok := f.set.HostPath("uid-1", "v"); path != dir || !ok {
		t.Errorf("it lies at %q", path)
	}
	if !f.set.KeepsLabels("uid-1", "v") || !slices.Equal(f.set.Groups("uid-1"), []int64{77}) || len(f.set.Volumes("uid-1")) != 0 {
		t.Errorf("of the host: %v, groups %v, shown %v", f.set.KeepsLabels("uid-1", "v"), f.set.Groups("uid-1"), f.set.Volumes("uid-1"))
	}
	if got := f.set.Present(); got["kubernetes.io/host-path"] != 1 {
		t.Errorf("present: %v", got)
	}
	reads := f.claims.reads
	f.bind("c", "another", hostPathPV("/")) // what becomes of a claim in use changes nothing
	if err := f.set.Setup(t.Context(), pod); err != nil || f.claims.reads != reads {
		t.Errorf("once more: %v, after %d reads", err, f.claims.reads-reads)
	}
}

func TestWhatIsNotYetBoundIsAwaited(t *testing.T) {
	f := newFixture(t)
	pod := podWith(claimVolume("v", "c"))
	try := func(want, awaits string) {
		t.Helper()
		fails(t, f.set.Setup(t.Context(), pod), want)
		if got := f.claims.waits(); awaits != "" && !slices.Equal(got, []string{awaits}) || awaits == "" && len(got) > 0 {
			t.Errorf("awaited %q, want %q", got, awaits)
		}
		if _, up := f.set.HostPath("uid-1", "v"); up {
			t.Error("it counts as set up")
		}
	}
	const failed = `MountVolume.SetUp failed for volume "v" : error processing PVC ns/c: `
	try(failed+`failed to fetch PVC from API server: persistentvolumeclaims "c" not found`, `uid-1: persistentvolumeclaims "ns/c" of ns, seen: false`)
	pv := f.bind("c", "pv", localPV("/"))
	f.claims.claims["c"].Status.Phase = v1.ClaimPending
	try(failed+`PVC is not bound`, `uid-1: persistentvolumeclaims "ns/c" of ns, seen: true`)
	f.claims.claims["c"].Status.Phase = v1.ClaimBound
	delete(f.claims.volumes, "pv")
	try(failed+`failed to fetch PV pv from API server: persistentvolumes "pv" not found`, `uid-1: persistentvolumes "pv" of ns, seen: false`)
	f.claims.volumes["pv"] = pv
	pv.Spec.ClaimRef.UID = "other"
	try(failed+`found PV object pv but its pv.Spec.ClaimRef.UID other does not point to claim.UID uid of c`, `uid-1: persistentvolumes "pv" of ns, seen: true`)
	pv.Spec.ClaimRef.UID = "uid of c"
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{"m"}}},
	}}}}
	try(`MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`, "")
	f.claims.node.Labels[v1.LabelHostname] = "m"
	pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{CephFS: &v1.CephFSPersistentVolumeSource{}}
	try(`MountVolume.SetUp failed for volume "pv" : PersistentVolume pv is of the kind cephfs, which this node does not support; use csi, nfs, iscsi, fc, hostPath or local`, "")
	pv.Name, pv.Spec.PersistentVolumeSource = "../pv", localPV("/")
	try(`MountVolume.SetUp failed for volume "../pv" : PersistentVolume "../pv" cannot be a directory's name`, "")
}

// TestAClaimThatNoContainerMountsIsNotWaitedFor: the kubelet leaves it alone, until a
// container for debugging mounts it.
func TestAClaimThatNoContainerMountsIsNotWaitedFor(t *testing.T) {
	f := newFixture(t)
	pod := podWith(claimVolume("v", "c"))
	pod.Spec.Containers[0].VolumeMounts = nil
	if err := f.set.Setup(t.Context(), pod); err != nil || f.claims.reads > 0 {
		t.Fatalf("%v, %d reads", err, f.claims.reads)
	}
	dir := t.TempDir()
	f.bind("c", "pv", hostPathPV(dir))
	pod = pod.DeepCopy()
	pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{VolumeMounts: []v1.VolumeMount{{Name: "v"}}}}}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if path, _ := f.set.HostPath("uid-1", "v"); path != dir {
		t.Errorf("it lies at %q", path)
	}
}

func TestAnEphemeralVolumeIsSetUpFromThePodsOwnClaimOnly(t *testing.T) {
	f := newFixture(t)
	f.bind("p-v", "pv", hostPathPV(t.TempDir()))
	pod := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
	fails(t, f.set.Setup(t.Context(), pod), `MountVolume.SetUp failed for volume "v" : PVC ns/p-v was not created for pod ns/p (pod is not owner)`)
	yes := true
	f.claims.claims["p-v"].OwnerReferences = append(f.claims.claims["p-v"].OwnerReferences, ownedBy("uid-1", &yes))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

// TestWhatAPreviousRunHasSetUpStands: containers start again though podsync was killed
// and the apiserver is away, or the claim is gone.
func TestWhatAPreviousRunHasSetUpStands(t *testing.T) {
	f := newFixture(t)
	f.bind("l", "pv-l", localPV(t.TempDir())).Annotations = map[string]string{"pv.beta.kubernetes.io/gid": "77"}
	f.bind("h", "pv-h", hostPathPV("/"))
	pod := podWith(claimVolume("l", "l"), claimVolume("h", "h"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want, _ := f.set.HostPath("uid-1", "l")
	f.set = f.restarted()
	f.claims.setAway(errors.New("away"))
	var failed podstate.VolumeErrors
	if err := f.set.Setup(t.Context(), pod); !errors.As(err, &failed) || len(failed.Standing()) != 2 {
		t.Fatalf("%v, standing: %v", err, failed.Standing())
	}
	if path, _ := f.set.HostPath("uid-1", "l"); path != want || want != filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~local-volume/pv-l") {
		t.Errorf("it stands at %q, and was set up at %q", path, want)
	}
	if !f.set.KeepsLabels("uid-1", "h") || f.set.KeepsLabels("uid-1", "l") || !slices.Equal(f.set.Groups("uid-1"), []int64{77}) {
		t.Error("it is not known what stands")
	}
	f.claims.setAway(nil)
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Errorf("when the apiserver is back: %v", err)
	}
	f.set = f.restarted()
	f.bind("l", "another", localPV("/"))
	err := f.set.Setup(t.Context(), pod)
	fails(t, err, `MountVolume.SetUp failed for volume "l" : error processing PVC ns/l: it is bound to PersistentVolume "another" now, and the pod was given "pv-l"; delete the pod`)
}

func TestALocalVolumeThatWasNotMountedDoesNotStand(t *testing.T) {
	f := newFixture(t)
	f.bind("c", "pv", localPV(t.TempDir()))
	pod := podWith(claimVolume("v", "c"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := f.mounts.Reboot(); err != nil {
		t.Fatal(err)
	}
	f.set = f.restarted()
	f.claims.setAway(errors.New("away"))
	if err := f.set.Setup(t.Context(), pod); err == nil {
		t.Fatal("no error")
	}
	if path, up := f.set.HostPath("uid-1", "v"); up {
		t.Errorf("what is not mounted stands at %s", path)
	}
}

func TestAVolumeForOnePodIsThatOfTheFirstUntilItIsGone(t *testing.T) {
	for name, source := range map[string]v1.PersistentVolumeSource{"local": localPV(t.TempDir()), "hostPath": hostPathPV("/")} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.bind("c", "pv", source).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
			first, second := named(podWith(claimVolume("v", "c")), "a"), named(podWith(claimVolume("v", "c")), "b")
			if err := f.set.Setup(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			f.set = f.restarted()
			if err := f.set.Setup(t.Context(), second); !errors.Is(err, claims.ErrInUse) {
				t.Fatalf("the second pod: %v", err)
			}
			if err := f.set.Setup(t.Context(), first); err != nil {
				t.Errorf("the first pod once more: %v", err)
			}
			if err := f.set.Teardown(t.Context(), first.UID); err != nil {
				t.Fatal(err)
			}
			if told := <-f.changed; told != second.UID {
				t.Errorf("told of %s", told)
			}
			if err := f.set.Setup(t.Context(), second); err != nil {
				t.Errorf("after the first: %v", err)
			}
		})
	}
}

// TestAVolumeForOnePodIsNotThatOfWhoCallsAVolumeLikeIt: whoever makes a pod says what its
// volumes are called, and "data" is what many of them are.
func TestAVolumeForOnePodIsNotThatOfWhoCallsAVolumeLikeIt(t *testing.T) {
	nfs := v1.NFSVolumeSource{Server: "s", Path: "/d"}
	for name, source := range map[string]v1.PersistentVolumeSource{
		"local": localPV(t.TempDir()), "hostPath": hostPathPV("/"), "nfs": {NFS: &v1.NFSVolumeSource{Server: "s", Path: "/e"}},
	} {
		for kind, own := range map[string]v1.Volume{"emptyDir": emptyDirVolume("data"), "nfs": nfsVolume("data", nfs)} {
			t.Run(name+" and "+kind, func(t *testing.T) {
				f := newFixture(t)
				f.bind("c", "data", source).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
				first := named(podWith(own), "a")
				if err := f.set.Setup(t.Context(), first); err != nil {
					t.Fatal(err)
				}
				f.set = f.restarted() // it may not have come to the first yet
				f.set.deps.Spec = func(uid types.UID) *v1.Pod {
					if uid == first.UID {
						return first
					}
					return nil
				}
				if err := f.set.Setup(t.Context(), named(podWith(claimVolume("v", "c")), "b")); err != nil {
					t.Error(err)
				}
				if err := f.set.Setup(t.Context(), named(podWith(claimVolume("v", "c")), "c")); !errors.Is(err, claims.ErrInUse) {
					t.Errorf("the second pod: %v", err)
				}
			})
		}
	}
}

// TestAVolumeForOnePodIsNotGivenToASecondOneBesideWhatAnotherAgentHasMadeOfIt, of which only
// the directory says that.
func TestAVolumeForOnePodIsNotGivenToASecondOneBesideWhatAnotherAgentHasMadeOfIt(t *testing.T) {
	for at, source := range map[string]v1.PersistentVolumeSource{
		"volumes/kubernetes.io~local-volume": localPV(t.TempDir()), "volumes/kubernetes.io~nfs": {NFS: &v1.NFSVolumeSource{Server: "s", Path: "/e"}},
		"volumes/kubernetes.io~iscsi": {ISCSI: &v1.ISCSIPersistentVolumeSource{}}, "volumeDevices/kubernetes.io~fc": {FC: &v1.FCVolumeSource{}},
		"volumeDevices/kubernetes.io~csi": csiPV(),
	} {
		f := newFixture(t)
		pv := f.bind("c", "pv", source)
		if used, err := f.set.usedElsewhere(pv, "uid-b"); used || err != nil {
			t.Errorf("%s: used: %v, %v", at, used, err)
		}
		if err := os.MkdirAll(filepath.Join(f.root, "pods/uid-a", at, "pv"), 0o750); err != nil {
			t.Fatal(err)
		}
		if used, err := f.set.usedElsewhere(pv, "uid-b"); !used || err != nil {
			t.Errorf("%s: used: %v, %v", at, used, err)
		}
	}
}

// TestADebugContainerThatWaitsForAVolumeForOnePodIsToldThatItIsFree: nothing of the pod mounted
// the volume before.
func TestADebugContainerThatWaitsForAVolumeForOnePodIsToldThatItIsFree(t *testing.T) {
	f := newFixture(t)
	f.bind("c", "pv", hostPathPV("/")).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	second := named(podWith(claimVolume("v", "c")), "b")
	second.Spec.Containers[0].VolumeMounts = nil
	if err := errors.Join(f.set.Setup(t.Context(), named(podWith(claimVolume("v", "c")), "a")), f.set.Setup(t.Context(), second)); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), debugged(second, "v")); !errors.Is(err, claims.ErrInUse) {
		t.Fatalf("beside the first: %v", err)
	}
	if err := f.set.Teardown(t.Context(), "uid-a"); err != nil {
		t.Fatal(err)
	}
	select {
	case uid := <-f.changed:
		if uid != second.UID {
			t.Errorf("told is %s", uid)
		}
	default:
		t.Error("nobody is told")
	}
}

// TestWhoWaitsForAVolumeForOnePodIsToldThatAPodOfAnotherAgentIsGone, though of that nothing
// says that it had a claim.
func TestWhoWaitsForAVolumeForOnePodIsToldThatAPodOfAnotherAgentIsGone(t *testing.T) {
	f := newFixture(t)
	f.bind("c", "pv", localPV(t.TempDir())).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	if err := os.MkdirAll(filepath.Join(f.root, "pods/uid-a/volumes/kubernetes.io~local-volume/pv"), 0o750); err != nil {
		t.Fatal(err)
	}
	second := named(podWith(claimVolume("v", "c")), "b")
	if err := f.set.Setup(t.Context(), second); !errors.Is(err, claims.ErrInUse) {
		t.Fatalf("beside it: %v", err)
	}
	if err := f.set.Teardown(t.Context(), "uid-a"); err != nil {
		t.Fatal(err)
	}
	select {
	case told := <-f.changed:
		if told != second.UID {
			t.Errorf("told of %s", told)
		}
	default:
		t.Error("told of nobody")
	}
	if err := f.set.Setup(t.Context(), second); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func TestAPodThatCannotHaveAVolumeLeavesItToOthers(t *testing.T) {
	f := newFixture(t)
	missing := filepath.Join(t.TempDir(), "missing")
	f.bind("c", "pv", localPV(missing)).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	if err := f.set.Setup(t.Context(), named(podWith(claimVolume("v", "c")), "a")); err == nil {
		t.Fatal("a directory that is not there was mounted")
	}
	if err := os.Mkdir(missing, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.set.Setup(t.Context(), named(podWith(claimVolume("v", "c")), "b")); err != nil {
		t.Error(err)
	}
}

func TestTeardownOfClaimsLeavesNothingOfThePodAndAllOfTheVolumes(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "data"), 0o600)
	f.bind("l", "pv-l", localPV(dir))
	f.bind("h", "pv-h", hostPathPV(dir))
	if err := f.set.Setup(t.Context(), podWith(claimVolume("l", "l"), claimVolume("h", "h"))); err != nil {
		t.Fatal(err)
	}
	f.set = f.restarted()
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if err := f.set.RemovePodDir("uid-1"); err != nil {
		t.Error(err)
	}
	if left := f.mounts.Mounts(); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(f.root, "pods/uid-1")); !os.IsNotExist(err) {
		t.Errorf("the pod's directory: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		t.Errorf("the volume's data: %v", err)
	}
}

func TestAPersistentVolumeOfTheHostTakesNoMountOptions(t *testing.T) {
	f := newFixture(t)
	f.bind("c", "pv", hostPathPV("/")).Spec.MountOptions = []string{"ro"}
	fails(t, f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))),
		`MountVolume.MountOptionSupport check failed for volume "pv" : mount options are not supported for this volume type`)
}

func TestAClaimCountsAsAMount(t *testing.T) {
	if n := mountsOf(podWith(claimVolume("v", "c"), emptyDirVolume("e"))); n != 1 {
		t.Errorf("%d mounts", n)
	}
}

func TestADamagedRecordOfAClaimIsMadeAnew(t *testing.T) {
	f := newFixture(t)
	f.bind("c", "pv", hostPathPV("/"))
	pod := podWith(claimVolume("v", "c"))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	file := f.set.boundFile(types.UID("uid-1"), "v")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.set = f.restarted()
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if b, kept := f.set.keptBound("uid-1", "v"); !kept || b.PV != "pv" {
		t.Errorf("kept: %+v, %v", b, kept)
	}
}
