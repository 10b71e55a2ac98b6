package objects

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func trusting(uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "ns", UID: types.UID(uid)},
		Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{}}},
		}}}}},
	}
}

func (b *bench) bundle(t *testing.T, name, pem string) {
	t.Helper()
	_, err := b.admin.CertificatesV1beta1().ClusterTrustBundles().Create(t.Context(), &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: pem},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// bundles are the names and texts of all trust bundles, or the error.
func (b *bench) bundles(t *testing.T) string {
	t.Helper()
	all, err := b.store.TrustBundles(t.Context())
	if err != nil {
		return err.Error()
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name+"="+all[i].Spec.TrustBundle)
	}
	return strings.Join(names, " ")
}

func TestTrustBundlesAreKeptCurrentWhileAPodRefersToThem(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		c := b.admin.CertificatesV1beta1().ClusterTrustBundles()
		b.bundle(t, "b", "1")
		if got := b.bundles(t); got != "b=1" {
			t.Errorf("read while no pod is held they are %q", got)
		}
		b.store.Hold(trusting("p1"))
		b.store.Hold(trusting("p2"))
		synctest.Wait()
		b.changes()
		begun := time.Now()
		b.bundle(t, "a", "2")
		synctest.Wait()
		if got := b.bundles(t); got != "a=2 b=1" || time.Since(begun) > time.Second {
			t.Errorf("after one was made they are %q, after %v", got, time.Since(begun))
		}
		if seen := strings.Join(b.changes(), ","); !strings.Contains(seen, "for p1") || !strings.Contains(seen, "for p2") {
			t.Errorf("told were %q", seen)
		}
		if err := c.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.bundles(t); got != "a=2" {
			t.Errorf("after one went they are %q", got)
		}
		b.store.Release("p1")
		b.store.Release("p2")
		synctest.Wait()
		b.changes()
		b.bundle(t, "c", "3")
		synctest.Wait()
		if seen := b.changes(); len(seen) != 0 {
			t.Errorf("with no pod left %v were told", seen)
		}
	})
}

func TestAnApiserverWithoutTrustBundlesIsNamedAtOnce(t *testing.T) {
	inBubble(t, fakeapiserver.Config{Without: []string{"clustertrustbundles"}}, func(t *testing.T, b *bench) {
		const want = "the apiserver does not serve ClusterTrustBundles"
		if got := b.bundles(t); !strings.Contains(got, want) {
			t.Errorf("read while no pod is held: %s", got)
		}
		b.store.Hold(trusting("p"))
		begun := time.Now()
		if got := b.bundles(t); !strings.Contains(got, want) || time.Since(begun) > time.Second {
			t.Errorf("of a pod that is held, after %v: %s", time.Since(begun), got)
		}
	})
}

func TestANodeThatMayNotReadTrustBundlesIsToldSo(t *testing.T) {
	refused := func(q fakeapiserver.Request) fakeapiserver.Fault {
		if q.Resource == "clustertrustbundles" {
			return fakeapiserver.Fault{Status: 403}
		}
		return fakeapiserver.Fault{}
	}
	inBubble(t, fakeapiserver.Config{Faults: refused}, func(t *testing.T, b *bench) {
		if got := b.bundles(t); strings.Contains(got, "does not serve") || !strings.Contains(got, "clustertrustbundles") {
			t.Errorf("of an apiserver that serves them and refuses: %s", got)
		}
	})
}

func TestNothingIsWatchedForAGateThatIsOff(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		b.store.cfg.TrustBundles = false
		b.store.Hold(trusting("p"))
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		if e := b.store.entries[Key{Kind: ClusterTrustBundle}]; e != nil {
			t.Error("the trust bundles are watched")
		}
	})
}
