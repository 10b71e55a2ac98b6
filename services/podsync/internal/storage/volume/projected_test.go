package volume

import (
	"context"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/cluster/podcertificate"
)

func trustVolume(src *v1.ClusterTrustBundleProjection) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		Sources: []v1.VolumeProjection{{ClusterTrustBundle: src}},
	}}}
}

func (o *fakeObjects) setBundle(name, der string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bundles = []certificatesv1beta1.ClusterTrustBundle{{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: anchor(der)},
	}}
}

func anchor(der string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)}))
}

func TestATrustBundleIsProjectedAndFollowsTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, stop := f.runs(t)
		defer stop()
		pod := podWith(trustVolume(&v1.ClusterTrustBundleProjection{Name: ptr.To("roots"), Path: "ca/roots.pem"}))
		if err := f.set.Setup(ctx, pod); err == nil || !strings.Contains(err.Error(), `"roots" not found`) {
			t.Fatalf("without the bundle: %v", err)
		}
		f.objects.setBundle("roots", "old")
		if err := f.set.Setup(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if got := f.files(t, "v")["ca/roots.pem"]; got != anchor("old") {
			t.Errorf("the file is %q", got)
		}
		f.objects.setBundle("roots", "new")
		f.set.ObjectChanged([]types.UID{"uid-1"})
		synctest.Wait()
		if got := f.files(t, "v")["ca/roots.pem"]; got != anchor("new") {
			t.Errorf("after the change the file is %q", got)
		}
	})
}

func TestAnOptionalTrustBundleThatIsNotThereIsAnEmptyFile(t *testing.T) {
	f := newFixture(t)
	pod := podWith(trustVolume(&v1.ClusterTrustBundleProjection{Name: ptr.To("roots"), Path: "roots.pem", Optional: ptr.To(true)}))
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if got, there := f.files(t, "v")["roots.pem"]; got != "" || !there {
		t.Errorf("the file is %q, there: %v", got, there)
	}
}

func TestATrustBundleIsForThePodsUserAlone(t *testing.T) {
	f := newFixture(t)
	f.objects.setBundle("roots", "x")
	pod := podWith(trustVolume(&v1.ClusterTrustBundleProjection{Name: ptr.To("roots"), Path: "roots.pem"}))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To(int64(os.Getuid()))}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	dir, _ := f.set.HostPath("uid-1", "v")
	if info, err := os.Stat(filepath.Join(dir, "roots.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

func TestATrustBundleWithoutItsGateSaysWhichGateIsOff(t *testing.T) {
	f := newFixture(t)
	f.set.cfg.TrustBundles = false
	f.objects.setBundle("roots", "x")
	err := f.set.Setup(t.Context(), podWith(trustVolume(&v1.ClusterTrustBundleProjection{Name: ptr.To("roots"), Path: "roots.pem", Optional: ptr.To(true)})))
	if err == nil || !strings.Contains(err.Error(), "ClusterTrustBundleProjection is off") {
		t.Errorf("the error is %v", err)
	}
}

// certificates hands out one certificate for each source.
type certificates struct {
	err    error
	forgot []types.UID
}

func (c *certificates) Get(_ context.Context, r podcertificate.Request) (podcertificate.Credential, error) {
	which := r.Volume + strings.Repeat("+", r.Index) + r.Source.KeyType
	return podcertificate.Credential{Key: []byte("key of " + which + "\n"), Chain: []byte("chain of " + which + "\n"), Refresh: time.Now().Add(time.Hour)}, c.err
}

func (c *certificates) Forget(uid types.UID) { c.forgot = append(c.forgot, uid) }

func TestACertificateOfAPodIsProjectedWithItsKey(t *testing.T) {
	f := newFixture(t)
	given := &certificates{}
	f.set.deps.Certificates = given
	pod := podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{PodCertificate: &v1.PodCertificateProjection{KeyType: "A", CredentialBundlePath: "bundle.pem"}},
		{PodCertificate: &v1.PodCertificateProjection{KeyType: "B", KeyPath: "key.pem", CertificateChainPath: "chain.pem"}},
	}}}})
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To(int64(os.Getuid()))}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	got := f.files(t, "v")
	for path, want := range map[string]string{"bundle.pem": "key of vA\nchain of vA\n", "key.pem": "key of v+B\n", "chain.pem": "chain of v+B\n"} {
		if got[path] != want {
			t.Errorf("%s holds %q", path, got[path])
		}
	}
	dir, _ := f.set.HostPath("uid-1", "v")
	if info, err := os.Stat(filepath.Join(dir, "key.pem")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", info, err)
	}
	if mounts := f.mounts.Mounts(); len(mounts) != 1 || mounts[0] != dir {
		t.Errorf("in memory are %v", mounts)
	}
	f.set.mu.Lock()
	next := f.set.pods["uid-1"].next
	f.set.mu.Unlock()
	if left := time.Until(next); left > time.Hour || left < 59*time.Minute {
		t.Errorf("it is made again after %v", left)
	}
	given.err = errors.New("denied")
	if err := f.set.Setup(t.Context(), pod); err == nil || !strings.Contains(err.Error(), "denied") || f.files(t, "v")["key.pem"] == "" {
		t.Errorf("refused later: %v", err)
	}
	if err := f.set.Teardown(t.Context(), "uid-1"); err != nil || len(given.forgot) != 1 {
		t.Errorf("%v, forgotten %v", err, given.forgot)
	}
}

func TestACertificateWithoutItsGateSaysWhichGateIsOff(t *testing.T) {
	f := newFixture(t)
	err := f.set.Setup(t.Context(), podWith(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		Sources: []v1.VolumeProjection{{PodCertificate: &v1.PodCertificateProjection{KeyPath: "k"}}},
	}}}))
	if err == nil || !strings.Contains(err.Error(), "PodCertificateRequest is off") {
		t.Errorf("the error is %v", err)
	}
}

// TestAProjectedSourceThatNamesNothingIsLeftOut: the apiserver makes it of one whose gate is off
// there, and a kubelet starts the pod.
func TestAProjectedSourceThatNamesNothingIsLeftOut(t *testing.T) {
	f := newFixture(t)
	f.objects.setMap("cm", map[string]string{"k": "v"})
	pod := podWith(
		projectedVolume("none", v1.VolumeProjection{}),
		projectedVolume("some", v1.VolumeProjection{}, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}),
	)
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if none, some := f.files(t, "none"), f.files(t, "some"); len(none) != 0 || len(some) != 1 || some["k"] != "v" {
		t.Errorf("the volumes hold %v and %v", none, some)
	}
}
