package podsync

import (
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/report/notice"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// startInCluster runs a podsync of a fake apiserver that has the node n1.
func startInCluster(t testing.TB, rt *fakecri.Runtime, api *fakeapiserver.Server) *Service {
	t.Helper()
	return startInClusterWith(t, rt, api, func(*Config, *Deps) {}, func(*Service) {})
}

// startInClusterWith is startInCluster with another configuration, and before
// looks at the Service before it runs.
func startInClusterWith(t testing.TB, rt *fakecri.Runtime, api *fakeapiserver.Server, change func(*Config, *Deps), before func(*Service)) *Service {
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
	deps := faked(conn)
	deps.Client = api.Client()
	cfg := bare(dir)
	change(&cfg, &deps)
	s, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	before(s)
	run(t, s, func() {
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
				pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "keys", MountPath: "/keys"}}
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

// Somebody has written into the status of a pod that is never restarted that its
// container has ended; it runs, and the apiserver does not let it be said.
func TestAPartOfAStatusThatIsRefusedForGoodIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{})
		metrics := prometheus.NewRegistry()
		s := startInClusterWith(t, fakecri.New(fakecri.Config{Images: []string{"app:1"}, Scripts: map[string]fakecri.Script{"app:1": {Runs: []fakecri.Run{{For: -1}}}}}), api, func(_ *Config, d *Deps) { d.Metrics = metrics }, func(*Service) {})
		_, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"},
			Spec: v1.PodSpec{
				NodeName: "n1", RestartPolicy: v1.RestartPolicyNever,
				Containers: []v1.Container{{Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if st := api.Pod("default", "p").Status; st.Phase != v1.PodRunning {
			t.Fatalf("it does not run: %+v", st)
		}
		_, err = api.Admin().CoreV1().Pods("default").Patch(t.Context(), "p", types.StrategicMergePatchType,
			[]byte(`{"status":{"podIP":"192.0.2.9","podIPs":[{"$patch":"replace"},{"ip":"192.0.2.9"}],"containerStatuses":[{"name":"c","image":"app:1","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":1}}}]}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if st := api.Pod("default", "p").Status; st.PodIP == "192.0.2.9" || st.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("the status is %+v", st)
		}
		resp, err := s.server.ExplainPod(t.Context(), &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: "default", Name: "p"}})
		if err != nil || !slices.ContainsFunc(resp.GetWaits(), func(w *podsyncv1.Wait) bool {
			return w.GetKind() == "apiserver" && w.GetObject() == "c" && strings.Contains(w.GetReason(), "for good")
		}) {
			t.Errorf("explain: %v %v", resp.GetWaits(), err)
		}
		events, err := s.server.ListRecentEvents(t.Context(), &podsyncv1.ListRecentEventsRequest{})
		if err != nil || !slices.ContainsFunc(events.GetEvents(), func(e *podsyncv1.RecentEvent) bool {
			return e.GetReason() == "StatusRefused" && e.GetContainer() == "c" && strings.Contains(e.GetMessage(), "non-terminated state")
		}) {
			t.Errorf("events: %v %v", events.GetEvents(), err)
		}
		const want = "# HELP polylet_pod_status_refused_parts_total Parts of pod statuses, by field, that the apiserver refuses for good and that are left out of what is written.\n" +
			"# TYPE polylet_pod_status_refused_parts_total counter\npolylet_pod_status_refused_parts_total{field=\"containerStatuses\"} 1\n"
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "polylet_pod_status_refused_parts_total"); err != nil {
			t.Error(err)
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
		said := notice.Notices{Events: s.events, Lines: timeline.NewBook(), Mirrors: s.mirrors}
		said.Refused("static", refusal("may not be changed"))
		synctest.Wait()
		if now := api.Pod("default", "web-n1").UID; now != first {
			t.Fatal("any refusal replaces the mirror")
		}
		said.Refused("static", refusal("may not be transitioned to non-terminated state"))
		synctest.Wait()
		if now := api.Pod("default", "web-n1"); now == nil || now.UID == first {
			t.Fatalf("the mirror is %v still", now)
		}
	})
}

// waitsOf returns what a pod of the namespace default waits for.
func (s *Service) waitsOf(t *testing.T, name string) []*podsyncv1.Wait {
	t.Helper()
	resp, err := s.server.ExplainPod(t.Context(), &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: "default", Name: name}})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return resp.GetWaits()
}

func TestAPullThatWaitsForItsTurnIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"one by one": {func(c *Config) { c.Images.MaxParallelPulls = 1 }, "its pull waits for its turn: images are pulled one after the other (serializeImagePulls)"},
		"few":        {func(c *Config) { c.Images.MaxParallelPulls = 2 }, "its pull waits for its turn: no more than 2 images are pulled at once (maxParallelImagePulls)"},
		"rate":       {func(c *Config) { c.Images.PullQPS, c.Images.PullBurst = 0.001, 2 }, "its pull waits for its turn: no more than 0.001 pulls begin in a second, after 2 at once (registryPullQPS, registryBurst)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := fakecri.RemoteImage{PullDelay: 4 * time.Minute}
				api := fakeapiserver.New(fakeapiserver.Config{})
				s := startInClusterWith(t, fakecri.New(fakecri.Config{Registry: map[string]fakecri.RemoteImage{"a:1": slow, "b:1": slow, "c:1": slow}}), api,
					func(cfg *Config, _ *Deps) { c.change(cfg) }, func(*Service) {})
				for _, name := range []string{"a", "b", "c"} {
					_, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
						ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
						Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: name + ":1"}}},
					}, metav1.CreateOptions{})
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Second)
				}
				began := time.Now()
				time.Sleep(10 * time.Second)
				waits := s.waitsOf(t, "c")
				i := slices.IndexFunc(waits, func(w *podsyncv1.Wait) bool { return w.GetReason() == c.want })
				if i < 0 || waits[i].GetKind() != "image" || waits[i].GetObject() != "c:1" || waits[i].GetAdvice() == "" || began.Sub(waits[i].GetSince().AsTime()).Abs() > 6*time.Second {
					t.Errorf("%v, want %s since %v", waits, c.want, began)
				}
				if waits := s.waitsOf(t, "a"); len(waits) != 1 || !strings.HasPrefix(waits[0].GetReason(), "the image is looked for") {
					t.Errorf("the one that is pulled: %v", waits)
				}
			})
		})
	}
}

func TestAFinalizerThatKeepsTheObjectOfAPodThatHasEndedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{})
		s := startInCluster(t, fakecri.New(fakecri.Config{Images: []string{"app:1"}}), api)
		pods := api.Admin().CoreV1().Pods("default")
		if _, err := pods.Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Finalizers: []string{"example.com/hold", "example.com/other"}},
			Spec:       v1.PodSpec{NodeName: "n1", Containers: []v1.Container{{Name: "c", Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if waits := s.waitsOf(t, "p"); len(waits) != 0 {
			t.Errorf("before: %v", waits)
		}
		if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		deleted := time.Now()
		time.Sleep(time.Hour) // what happened to it is forgotten by then
		waits := s.waitsOf(t, "p")
		if len(waits) != 1 || !strings.HasSuffix(waits[0].GetReason(), "until its finalizers are removed: example.com/hold, example.com/other") ||
			!strings.Contains(waits[0].GetAdvice(), "kubectl edit") || waits[0].GetSince().AsTime().Sub(deleted).Abs() > time.Minute {
			t.Fatalf("after its end: %v", waits)
		}
		if _, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/other"]}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if waits := s.waitsOf(t, "p"); len(waits) != 1 || !strings.HasSuffix(waits[0].GetReason(), ": example.com/other") {
			t.Errorf("after one was removed: %v", waits)
		}
		if _, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := s.server.ExplainPod(t.Context(), &podsyncv1.ExplainPodRequest{Pod: &podsyncv1.PodRef{Namespace: "default", Name: "p"}}); err == nil {
			t.Error("it is known after its object is gone")
		}
	})
}
