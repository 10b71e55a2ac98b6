package volume

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// TestAChangeInTheApiserverIsInTheFileWithinMilliseconds runs the objects, the
// tokens and the volumes together, as podsync does.
func TestAChangeInTheApiserverIsInTheFileWithinMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapiserver.New(fakeapiserver.Config{})
		defer server.Close()
		admin := server.Admin()
		store := objects.New(objects.Config{}, objects.Deps{Client: server.Client()})
		again := make(chan types.UID, 10)
		set := New(Config{RootDir: t.TempDir()}, Deps{
			Objects: store, Mounter: mount.NewFake(),
			Tokens: serviceaccount.New(serviceaccount.Config{}, serviceaccount.Deps{Requester: serviceaccount.FromClient(server.Client())}),
		})
		store.Subscribe(func(_ objects.Key, holders []types.UID) {
			set.ObjectChanged(holders)
			waiting(again).ObjectsChanged(holders) // as the workers are
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- store.Run(ctx) }()
		go func() { done <- set.Run(ctx) }()

		sa := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sa", Namespace: "ns"}}
		if _, err := admin.CoreV1().ServiceAccounts("ns").Create(ctx, sa, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := podWith(configMapVolume("v", "cm"), v1.Volume{Name: "t", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		}}}})
		created, err := admin.CoreV1().Pods("ns").Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}, NodeName: "n"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.UID = created.UID
		if err := set.Setup(ctx, pod); err == nil || !strings.Contains(err.Error(), `configmap "cm" not found`) {
			t.Fatalf("without the object: %v", err)
		}
		cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm", Namespace: "ns"}, Data: map[string]string{"k": "1"}}
		if cm, err = admin.CoreV1().ConfigMaps("ns").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if uid := <-again; uid != pod.UID {
			t.Fatalf("pod %s was told", uid)
		}
		if err := set.Setup(ctx, pod); err != nil {
			t.Fatal(err)
		}
		dir, _ := set.HostPath(pod.UID, "v")
		secret, _ := set.HostPath(pod.UID, "t")
		if raw, err := os.ReadFile(filepath.Join(secret, "token")); err != nil || len(raw) == 0 {
			t.Errorf("token %q, %v", raw, err)
		}
		start := time.Now()
		cm.Data["k"] = "2"
		if _, err := admin.CoreV1().ConfigMaps("ns").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if raw, err := os.ReadFile(filepath.Join(dir, "k")); err != nil || string(raw) != "2" || time.Since(start) > 10*time.Millisecond {
			t.Errorf("after %v: %q, %v", time.Since(start), raw, err)
		}
		if err := set.Teardown(ctx, pod.UID); err != nil {
			t.Error(err)
		}
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func BenchmarkSetupAndTeardown(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("mounting needs root")
	}
	o := &fakeObjects{maps: map[string]*v1.ConfigMap{"ns/cm": {Data: map[string]string{"ca.crt": "x"}}}, held: map[types.UID]int{}}
	set := New(Config{RootDir: b.TempDir()}, Deps{Objects: o, Tokens: &tokens{}, Mounter: mount.New(mount.Config{})})
	pod := podWith(emptyDirVolume("e"), v1.Volume{Name: "t", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
	}}}})
	for b.Loop() {
		if err := set.Setup(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
		if err := set.Teardown(b.Context(), pod.UID); err != nil {
			b.Fatal(err)
		}
	}
}
