package volume

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
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
