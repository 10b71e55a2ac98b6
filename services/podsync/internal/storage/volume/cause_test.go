package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/cluster/podcertificate"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// causesOf are the causes of a set-up's failures, by volume.
func causesOf(t *testing.T, err error) map[string]podstate.VolumeCause {
	t.Helper()
	failed, is := errors.AsType[podstate.VolumeErrors](err)
	if !is {
		t.Fatalf("the error is of no volume: %v", err)
	}
	causes := map[string]podstate.VolumeCause{}
	for _, one := range failed {
		causes[one.Volume] = podstate.VolumeCauseOf(one)
	}
	return causes
}

func projectedVolume(name string, sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}
}

func TestWhatKeepsAVolumeOfAPodsSpecHasItsCause(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("there", map[string]string{"k": "v"})
	there := v1.LocalObjectReference{Name: "there"}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), 0o600)
	wants := map[string]podstate.VolumeCause{}
	var volumes []v1.Volume
	add := func(want podstate.VolumeCause, source v1.VolumeSource) {
		name := fmt.Sprintf("v%d", len(volumes))
		wants[name], volumes = want, append(volumes, v1.Volume{Name: name, VolumeSource: source})
	}
	of := func(v v1.Volume) v1.VolumeSource { return v.VolumeSource }
	add(podstate.VolumeObjectMissing, of(configMapVolume("", "absent")))
	add(podstate.VolumeObjectMissing, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "absent"}})
	add(podstate.VolumeObjectMissing, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: there, Items: []v1.KeyToPath{{Key: "none", Path: "x"}}}})
	add(podstate.VolumeSpec, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: there, Items: []v1.KeyToPath{{Key: "k", Path: "../x"}}}})
	add(podstate.VolumeSpec, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{Path: "x"}}}})
	add(podstate.VolumeSpec, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{Path: "x", FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.none"}}}}})
	add(podstate.VolumeSpec, of(hostPathVolume("", "/tmp/../x", v1.HostPathUnset)))
	add(podstate.VolumeSpec, of(hostPathVolume("", dir, "Sometimes")))
	add(podstate.VolumeHostPath, of(hostPathVolume("", dir+"/absent", v1.HostPathDirectory)))
	add(podstate.VolumeHostPath, of(hostPathVolume("", dir+"/file", v1.HostPathSocket)))
	add(podstate.VolumeSpec, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Tape"}})
	add(podstate.VolumeSpec, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumHugePages}})
	add(podstate.VolumeUnsupported, v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{}})
	add(podstate.VolumeUnsupported, of(projectedVolume("", v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyPath: "x"}})))
	add(podstate.VolumeSpec, of(projectedVolume("", v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "x"}})))
	add(podstate.VolumeObjectMissing, of(projectedVolume("", v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr.To("b"), Path: "x"}})))
	add(podstate.VolumeSeveral, of(projectedVolume("", v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyPath: "x"}}, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "absent"}}})))
	if got := causesOf(t, f.set.Setup(t.Context(), podWith(volumes...))); len(got) != len(wants) {
		t.Errorf("%d volumes failed of %d", len(got), len(wants))
	} else {
		for name, want := range wants {
			if got[name] != want {
				t.Errorf("volume %s: cause %d, want %d", name, got[name], want)
			}
		}
	}
}

func TestWhatKeepsAVolumeOfAClaimHasItsCause(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), 0o600)
	fails := func(what string, want podstate.VolumeCause) {
		t.Helper()
		if got := causesOf(t, f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))))["v"]; got != want {
			t.Errorf("%s: cause %d, want %d", what, got, want)
		}
	}
	fails("no claim", podstate.VolumeObjectMissing)
	f.claims.setAway(errors.New("the apiserver has not answered"))
	fails("no answer", podstate.VolumeAPIServer)
	f.claims.setAway(nil)
	for path, want := range map[string]podstate.VolumeCause{
		"": podstate.VolumeSpec, "/tmp/../x": podstate.VolumeSpec, dir + "/no": podstate.VolumeLocalPath, dir + "/file": podstate.VolumeLocalPath, dir + "/file/below": podstate.VolumeLocalPath,
	} {
		f.bind("c", "pv", localPV(path))
		fails("local path "+path, want)
	}
	f.bind("c", "pv", localPV(dir)).Spec.MountOptions = []string{"data=journal"}
	fails("a mount option", podstate.VolumeOptions)
	f.bind("c", "pv", hostPathPV(dir)).Spec.MountOptions = []string{"ro"}
	fails("a mount option of a hostPath", podstate.VolumeOptions)
	f.bind("c", "pv", localPV(dir)).Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	fails("a device that is mounted", podstate.VolumeMode)
	f.bind("c", "pv", localPV(dir))
	f.claims.claims["c"].Status.Phase = v1.ClaimPending
	fails("not bound", podstate.VolumeNotBound)
}

func TestOneVolumeForOnePodIsInUse(t *testing.T) {
	f := newFixture(t)
	f.bind("c", "pv", localPV(t.TempDir())).Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	if err := f.set.Setup(t.Context(), podWith(claimVolume("v", "c"))); err != nil {
		t.Fatal(err)
	}
	second := podWith(claimVolume("v", "c"))
	second.UID = "uid-2"
	if got := causesOf(t, f.set.Setup(t.Context(), second))["v"]; got != podstate.VolumeInUse {
		t.Errorf("cause %d", got)
	}
}

func TestAnErrorOfTheClusterHasTheCauseOfItsKind(t *testing.T) {
	of := schema.GroupResource{Resource: "secrets"}
	for _, c := range []struct {
		err         error
		want, ofPod podstate.VolumeCause // ofPod: of a certificate
	}{
		{apierrors.NewNotFound(of, "s"), podstate.VolumeObjectMissing, podstate.VolumeObjectMissing},
		{apierrors.NewForbidden(of, "s", errors.New("no relationship found")), podstate.VolumeForbidden, podstate.VolumeForbidden},
		{apierrors.NewBadRequest("no"), podstate.VolumeSpec, podstate.VolumeSpec},
		{apierrors.NewTooManyRequests("wait", 1), podstate.VolumeAPIServer, podstate.VolumeAPIServer},
		{apierrors.NewUnauthorized("who"), podstate.VolumeAPIServer, podstate.VolumeAPIServer},
		{context.DeadlineExceeded, podstate.VolumeAPIServer, podstate.VolumeCertificate},
		{errors.New("credential bundle is not issued yet"), podstate.VolumeAPIServer, podstate.VolumeCertificate},
		{fmt.Errorf("%w: %w", objects.ErrNotServed, apierrors.NewNotFound(of, "s")), podstate.VolumeAsSaid, podstate.VolumeAsSaid},
		{objects.ErrStandalone, podstate.VolumeAsSaid, podstate.VolumeAsSaid},
		{serviceaccount.ErrStandalone, podstate.VolumeAsSaid, podstate.VolumeAsSaid},
		{serviceaccount.ErrTooMany, podstate.VolumeAsSaid, podstate.VolumeAsSaid},
		{podcertificate.ErrStandalone, podstate.VolumeAsSaid, podstate.VolumeAsSaid},
		{podcertificate.ErrTooMany, podstate.VolumeAsSaid, podstate.VolumeAsSaid},
	} {
		err := fmt.Errorf("read it: %w", c.err)
		if got := podstate.VolumeCauseOf(FromCluster(err)); got != c.want {
			t.Errorf("%v: cause %d, want %d", err, got, c.want)
		}
		if got := podstate.VolumeCauseOf(ofCertificate(err)); got != c.ofPod {
			t.Errorf("of a certificate: %v: cause %d, want %d", err, got, c.ofPod)
		}
	}
	if FromCluster(nil) != nil {
		t.Error("nothing is an error")
	}
}

func TestWhatKindOfErrorItIsSaysTheCauseWhereNobodyElseDoes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want podstate.VolumeCause
	}{
		{fmt.Errorf("%w: it panicked", rpcerr.ErrInternal), podstate.VolumePanicked},
		{fmt.Errorf("unmount: %w: %w", apart.ErrSilent, context.DeadlineExceeded), podstate.VolumeServerSilent},
		{&os.PathError{Op: "unmount", Path: "/v", Err: syscall.EBUSY}, podstate.VolumeBusy},
		{fmt.Errorf("it is still being set up: %w", context.DeadlineExceeded), podstate.VolumeUnderWay},
		{podstate.VolumeDriverSilent.Wrap(context.DeadlineExceeded), podstate.VolumeDriverSilent},
		{&os.PathError{Op: "mkdir", Path: "/v", Err: syscall.ENOSPC}, podstate.VolumeUnknown},
	} {
		if got := podstate.VolumeCauseOf(withCause(c.err)); got != c.want {
			t.Errorf("%v: cause %d, want %d", c.err, got, c.want)
		}
	}
}
