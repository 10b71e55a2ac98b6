package fakeapiserver_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bubble(t *testing.T, cfg fakeapiserver.Config, test func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := fakeapiserver.New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		test(ctx, s, s.Client())
		cancel()
		s.Close()
	})
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "app"}}},
	}
}

func mustCreate(t *testing.T, c kubernetes.Interface, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	out, err := c.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAPodIsCreatedWithDefaultsAndDeletedGracefully(t *testing.T) {
	bubble(t, fakeapiserver.Config{}, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		p := mustCreate(t, c, pod("a", "n1"))
		if p.UID == "" || p.Generation != 1 || p.Spec.RestartPolicy != corev1.RestartPolicyAlways || p.Status.Phase != corev1.PodPending ||
			p.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways || p.Status.QOSClass != corev1.PodQOSBestEffort {
			t.Errorf("created %+v", p)
		}
		if _, err := c.CoreV1().Pods("ns").Create(ctx, pod("a", ""), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("second create: %v", err)
		}
		if err := c.CoreV1().Pods("ns").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		got := s.Pod("ns", "a")
		if got == nil || time.Until(got.DeletionTimestamp.Time) != 30*time.Second || *got.DeletionGracePeriodSeconds != 30 || got.Generation != 2 {
			t.Fatalf("after the delete: %+v", got)
		}
		other := types.UID("other")
		zero := int64(0)
		err := c.CoreV1().Pods("ns").Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &other}})
		if !apierrors.IsConflict(err) {
			t.Errorf("with another UID: %v", err)
		}
		if err := c.CoreV1().Pods("ns").Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CoreV1().Pods("ns").Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after the end: %v", err)
		}
		mustCreate(t, c, pod("b", ""))
		_ = c.CoreV1().Pods("ns").Delete(ctx, "b", metav1.DeleteOptions{})
		if s.Pod("ns", "b") != nil {
			t.Error("a pod without a node is still there after its delete")
		}
	})
}

func TestStatusAndSpecAreWrittenApart(t *testing.T) {
	var writes []fakeapiserver.Write
	cfg := fakeapiserver.Config{OnWrite: func(w fakeapiserver.Write) { writes = append(writes, w) }}
	bubble(t, cfg, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		p := mustCreate(t, c, pod("a", "n1"))
		patch := []byte(`{"metadata":{"uid":"` + string(p.UID) + `"},"spec":{"nodeName":"elsewhere"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		got, err := c.CoreV1().Pods("ns").Patch(ctx, "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil || got.Status.Phase != corev1.PodRunning || got.Spec.NodeName != "n1" || got.Generation != 1 {
			t.Fatalf("%v, %+v", err, got)
		}
		more := []byte(`{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}`)
		got, err = c.CoreV1().Pods("ns").Patch(ctx, "a", types.StrategicMergePatchType, more, metav1.PatchOptions{}, "status")
		if err != nil || len(got.Status.Conditions) != 2 {
			t.Fatalf("conditions are not merged by type: %v, %+v", err, got.Status.Conditions)
		}
		again, err := c.CoreV1().Pods("ns").Patch(ctx, "a", types.StrategicMergePatchType, more, metav1.PatchOptions{}, "status")
		if err != nil || again.ResourceVersion != got.ResourceVersion {
			t.Errorf("a patch without a change made a new version: %v", err)
		}
		_, err = c.CoreV1().Pods("ns").Patch(ctx, "a", types.StrategicMergePatchType, []byte(`{"metadata":{"uid":"x"}}`), metav1.PatchOptions{}, "status")
		if !apierrors.IsInvalid(err) {
			t.Errorf("patch with another UID: %v", err)
		}
		stale := got.DeepCopy()
		stale.ResourceVersion = p.ResourceVersion
		if _, err := c.CoreV1().Pods("ns").UpdateStatus(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("stale update: %v", err)
		}
		full := got.DeepCopy()
		full.Status.Phase = corev1.PodFailed
		full.Labels = map[string]string{"a": "b"}
		full, err = c.CoreV1().Pods("ns").Update(ctx, full, metav1.UpdateOptions{})
		if err != nil || full.Status.Phase != corev1.PodRunning || full.Labels["a"] != "b" {
			t.Errorf("update: %v, %+v", err, full)
		}
		if h := s.StatusHistory("ns", "a"); len(h) != 2 || h[0].Old.(*corev1.Pod).Status.Phase != corev1.PodPending || len(writes) != 4 {
			t.Errorf("%d status writes, %d writes", len(h), len(writes))
		}
	})
}

func TestAnInformerFollowsThroughDroppedWatchesAndCompaction(t *testing.T) {
	for _, noWatchList := range []bool{false, true} {
		bubble(t, fakeapiserver.Config{NoWatchList: noWatchList}, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
			admin := s.Admin()
			mustCreate(t, admin, pod("first", "n1"))
			mustCreate(t, admin, pod("foreign", "n2"))
			factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", "n1").String()
			}))
			pods := factory.Core().V1().Pods()
			informer := pods.Informer()
			factory.Start(ctx.Done())
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				t.Fatal("never synced")
			}
			sees := func(when string, want int) {
				t.Helper()
				synctest.Wait()
				if got := len(informer.GetStore().List()); got != want {
					t.Errorf("%s: the informer has %d pods, want %d", when, got, want)
				}
			}
			sees("at first", 1)
			mustCreate(t, admin, pod("second", "n1"))
			sees("after a create", 2)

			s.DropWatches()
			mustCreate(t, admin, pod("third", "n1"))
			time.Sleep(time.Minute)
			sees("after a dropped watch", 3)

			s.Partition(fakeapiserver.Refuse)
			mustCreate(t, admin, pod("fourth", "n1"))
			s.Compact()
			time.Sleep(time.Minute)
			sees("while partitioned", 3)
			s.Heal()
			time.Sleep(2 * time.Minute)
			sees("after the partition and a 410", 4)

			s.Partition(fakeapiserver.Blackhole)
			mustCreate(t, admin, pod("fifth", "n1"))
			time.Sleep(time.Minute)
			sees("in the black hole", 4)
			s.Heal()
			sees("out of the black hole", 5)

			zero := int64(0)
			_ = admin.CoreV1().Pods("ns").Delete(ctx, "first", metav1.DeleteOptions{GracePeriodSeconds: &zero})
			sees("after a delete", 4)
		})
	}
}

func TestAWatchFromACompactedVersionAnswersExpired(t *testing.T) {
	bubble(t, fakeapiserver.Config{}, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		p := mustCreate(t, c, pod("a", "n1"))
		s.Compact()
		w, err := c.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: p.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		ev := <-w.ResultChan()
		if ev.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(ev.Object)) {
			t.Errorf("got %v", ev)
		}
		w.Stop()
	})
}

func TestBookmarksComeWhenAskedFor(t *testing.T) {
	bubble(t, fakeapiserver.Config{BookmarkEvery: 10 * time.Second}, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
		w, err := c.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		p := mustCreate(t, c, pod("a", "n1"))
		began := time.Now()
		ev := <-w.ResultChan()
		if ev.Type != watch.Bookmark || ev.Object.(*corev1.Node).ResourceVersion != p.ResourceVersion || time.Since(began) != 10*time.Second {
			t.Errorf("got %v after %v", ev, time.Since(began))
		}
		w.Stop()
	})
}

func TestFaultsHitRequests(t *testing.T) {
	var fault fakeapiserver.Fault
	cfg := fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
		if q.Verb == "create" && q.N == 0 {
			return fault
		}
		return fakeapiserver.Fault{}
	}}
	for name, tc := range map[string]struct {
		fault   fakeapiserver.Fault
		ok      func(error) bool
		took    time.Duration
		present bool
	}{
		"500":           {fakeapiserver.Fault{Status: 500}, apierrors.IsInternalError, 0, false},
		"429 then done": {fakeapiserver.Fault{Status: 429, RetryAfter: 7 * time.Second}, apierrors.IsAlreadyExists, 0, true},
		"drop":          {fakeapiserver.Fault{Drop: true}, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }, 0, false},
		"hang":          {fakeapiserver.Fault{Hang: true}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, time.Minute, false},
		"lost response": {fakeapiserver.Fault{After: true}, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }, 0, true},
		"slow":          {fakeapiserver.Fault{Delay: 9 * time.Second}, func(err error) bool { return err == nil }, 9 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			fault = tc.fault
			bubble(t, cfg, func(ctx context.Context, s *fakeapiserver.Server, c kubernetes.Interface) {
				short, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				began := time.Now()
				_, err := c.CoreV1().Pods("ns").Create(short, pod("a", "n1"), metav1.CreateOptions{})
				if tc.fault.Status == 429 {
					// client-go obeys Retry-After by itself.
					if err != nil || time.Since(began) != 7*time.Second {
						t.Errorf("%v after %v", err, time.Since(began))
					}
					return
				}
				synctest.Wait()
				if !tc.ok(err) || time.Since(began) != tc.took || (s.Pod("ns", "a") != nil) != tc.present {
					t.Errorf("%v after %v, pod present: %v", err, time.Since(began), s.Pod("ns", "a") != nil)
				}
			})
		})
	}
}
