package podsync

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/cri"
	"github.com/polylet/polylet/services/podsync/internal/hostsguard"
	"github.com/polylet/polylet/services/podsync/internal/volume/mount"
)

// startInCluster runs a podsync of a fake apiserver that has the node n1.
func startInCluster(t testing.TB, rt *fakecri.Runtime, api *fakeapiserver.Server) *Service {
	t.Helper()
	lots := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("1000")}
	if _, err := api.Admin().CoreV1().Nodes().Create(t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1.NodeStatus{Allocatable: lots, Capacity: lots},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	conn, err := rt.Dial(t.Context(), cri.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{NodeName: "n1", RootDir: filepath.Join(dir, "root"), PodLogsDir: filepath.Join(dir, "logs", "pods"), RuntimeEndpoint: "unix:///run/test.sock"},
		Deps{
			Epoch: 1, Runtime: conn, Images: conn, Client: api.Client(), Mounter: mount.NewFake(), Cgroups: cgroup.Off{},
			Notifier: quiet{}, LogNotifier: quiet{}, HostsGuard: hostsguard.Off{}, HostIPs: func() []string { return []string{"192.0.2.1"} },
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
		_ = conn.Close()
		rt.Close()
		api.Close()
	})
	return s
}

func TestExplainNamesWhatOnlyAnApiserverCanLack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if q.Verb == "patch" && q.Name == "refused" {
				return fakeapiserver.Fault{Status: 403}
			}
			return fakeapiserver.Fault{}
		}})
		s := startInCluster(t, fakecri.New(fakecri.Config{Images: []string{"app:1"}}), api)
		for _, name := range []string{"no-secret", "refused"} {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
				Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent}}},
			}
			if name == "no-secret" {
				pod.Spec.Volumes = []v1.Volume{{Name: "keys", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "not-there"}}}}
			}
			if _, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for name, want := range map[string][3]string{
			"no-secret": {"volume", "not-there", "create what the error names"},
			"refused":   {"apiserver", "has refused the pod's status", "system:node"},
		} {
			resp, err := s.server.ExplainPod(t.Context(), &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: "default", Name: name}})
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, w := range resp.GetWaits() {
				found = found || w.GetKind() == want[0] && strings.Contains(w.GetReason(), want[1]) && strings.Contains(w.GetAdvice(), want[2]) && w.GetRetryTime() != nil
			}
			if !found || len(resp.GetTimeline()) == 0 {
				t.Errorf("%s: no wait %v among %v, timeline %v", name, want, resp.GetWaits(), resp.GetTimeline())
			}
		}
		waits, err := s.server.ListWaits(t.Context(), &podsyncv1.ListWaitsRequest{})
		if err != nil || len(waits.GetPods()) != 2 || waits.GetPods()[0].GetPod().GetName() != "no-secret" {
			t.Errorf("%v %v", waits, err)
		}
		events, err := s.server.ListRecentEvents(t.Context(), &podsyncv1.ListRecentEventsRequest{})
		if err != nil || len(events.GetEvents()) == 0 {
			t.Errorf("%v %v", events, err)
		}
	})
}

// A machine that has booted runs a static pod anew of which the apiserver has
// that its containers ended for good.
func TestARefusalToShowThatAnEndedContainerRunsAgainReplacesTheMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{})
		s := startInCluster(t, fakecri.New(fakecri.Config{}), api)
		s.mirrors.SetStatic(&v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web-n1", Namespace: "default", UID: "static", Annotations: map[string]string{"kubernetes.io/config.hash": "static"}},
			Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "app:1"}}},
		})
		synctest.Wait()
		first := api.Pod("default", "web-n1").UID
		refusal := func(text string) error {
			return apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web-n1", field.ErrorList{field.Forbidden(field.NewPath("status"), text)})
		}
		s.refused("static", refusal("may not be changed"))
		synctest.Wait()
		if now := api.Pod("default", "web-n1").UID; now != first {
			t.Fatal("any refusal replaces the mirror")
		}
		s.refused("static", refusal("may not be transitioned to non-terminated state"))
		synctest.Wait()
		if now := api.Pod("default", "web-n1"); now == nil || now.UID == first {
			t.Fatalf("the mirror is %v still", now)
		}
	})
}
