package source

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

func apiPodOf(name, node string, annotations map[string]string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: annotations},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
}

// watching runs a source of the node n on an apiserver until end is called.
func watching(ctx context.Context, t *testing.T, api *fakeapiserver.Server) (r *recorder, end func()) {
	t.Helper()
	r = newRecorder()
	s, err := New(Config{NodeName: "n"}, Deps{Client: api.Client(), Mirrors: r, Health: reporter{r}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx, r) }()
	return r, func() {
		cancel()
		<-done
	}
}

func TestPodsOfThisNodeComeAtOnceAndMirrorsGoTheirOwnWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{})
		defer api.Close()
		create := func(pod *v1.Pod) {
			if _, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		create(apiPodOf("before", "n", map[string]string{podutil.AnnotationSource: File}))
		create(apiPodOf("elsewhere", "m", nil))
		create(apiPodOf("mirror", "n", map[string]string{podutil.AnnotationMirror: "x"}))

		r, end := watching(t.Context(), t, api)
		time.Sleep(time.Second)
		if got := r.names(); len(got) != 1 || got[0] != "before" || len(r.ready) != 1 || len(r.mirrors) != 1 {
			t.Fatalf("pods %v, ready %v, mirrors %d", got, r.ready, len(r.mirrors))
		}
		for _, pod := range r.pods {
			if podutil.Static(pod) {
				t.Fatal("a pod of the apiserver passes for a static one")
			}
		}

		begin := time.Now()
		create(apiPodOf("after", "n", nil))
		synctest.Wait()
		if got := r.names(); len(got) != 2 || time.Since(begin) != 0 {
			t.Fatalf("after %v: %v", time.Since(begin), got)
		}

		// A pod is replaced by one of the same name while nobody can watch.
		api.Partition(fakeapiserver.Refuse)
		time.Sleep(time.Minute)
		none := int64(0)
		if err := api.Admin().CoreV1().Pods("default").Delete(t.Context(), "after", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
			t.Fatal(err)
		}
		create(apiPodOf("after", "n", nil))
		api.Compact()
		api.Heal()
		api.DropWatches()
		time.Sleep(time.Minute)
		if got := r.names(); len(got) != 2 {
			t.Fatalf("after the partition: %v %v", got, r.log)
		}
		if len(r.ready) != 1 {
			t.Fatalf("ready %d times", len(r.ready))
		}
		end()
	})
}

// An apiserver sends nothing to a watch from a version that its data have not come to, so
// what a restore of etcd brought back, and took away, has to be asked for.
func TestARestoreOfAnOlderEtcdIsNoticed(t *testing.T) {
	for _, noWatchList := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			api := fakeapiserver.New(fakeapiserver.Config{NoWatchList: noWatchList})
			defer api.Close()
			pods := api.Admin().CoreV1().Pods("default")
			create := func(name string) {
				if _, err := pods.Create(t.Context(), apiPodOf(name, "n", nil), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			create("restored")
			r, end := watching(t.Context(), t, api)
			defer end()
			time.Sleep(time.Second)
			backup := api.Backup()
			none := int64(0)
			if err := pods.Delete(t.Context(), "restored", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
				t.Fatal(err)
			}
			create("lost")
			create("lost-too")
			time.Sleep(time.Minute)
			api.Partition(fakeapiserver.Refuse)
			api.Restore(backup, false)
			time.Sleep(time.Minute)
			api.Heal()
			time.Sleep(10 * time.Second)
			if got := r.names(); !slices.Equal(got, []string{"restored"}) {
				t.Errorf("no watch list %v: 10 s after the restore the pods are %v", noWatchList, got)
			}
			create("new")
			synctest.Wait()
			if got := r.names(); !slices.Equal(got, []string{"new", "restored"}) {
				t.Errorf("no watch list %v: with a new one the pods are %v", noWatchList, got)
			}
		})
	}
}

// While an apiserver starts it refuses much, and the pods are listed anew without a version
// then: what else is watched has not noticed anything.
func TestARestoreIsNoticedThoughTheVersionOfNowWasNotTold(t *testing.T) {
	for _, noWatchList := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var starts atomic.Bool
			api := fakeapiserver.New(fakeapiserver.Config{NoWatchList: noWatchList, Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
				switch {
				case starts.Load() && q.Verb == "list" && strings.Contains(q.FieldSelector, "metadata.name="):
					return fakeapiserver.Fault{Status: http.StatusForbidden}
				case starts.Load() && q.Verb == "watch" && noWatchList:
					return fakeapiserver.Fault{Status: http.StatusGone}
				}
				return fakeapiserver.Fault{}
			}})
			defer api.Close()
			var restored atomic.Int64
			s, err := New(Config{NodeName: "n"}, Deps{Client: api.Client(), Mirrors: newRecorder(), Health: reporter{newRecorder()}, Restored: func() { restored.Add(1) }})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = s.Run(ctx, newRecorder()) }()
			defer func() { cancel(); <-done }()
			time.Sleep(time.Second)
			backup := api.Backup()
			for _, name := range []string{"a", "b", "c"} {
				if _, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), apiPodOf(name, "n", nil), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			if restored.Load() > 0 {
				t.Error("nothing was restored yet")
			}
			starts.Store(true)
			api.Restore(backup, false)
			time.Sleep(time.Minute)
			starts.Store(false)
			time.Sleep(time.Minute)
			if n := restored.Load(); n != 1 {
				t.Errorf("no watch list %v: it was told %d times", noWatchList, n)
			}
		})
	}
}

// An apiserver whose cache is behind reads from etcd what a list without a version asks
// for: of many pods all, of one name one.
func TestTheVersionOfNowIsAskedForWithoutAListOfAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if q.Verb == "list" {
				asked.Add(1)
				if q.Namespace == "" || !strings.Contains(q.FieldSelector, "metadata.name=") || !strings.Contains(q.FieldSelector, "spec.nodeName=n") {
					t.Errorf("a list of %q in %q", q.FieldSelector, q.Namespace)
				}
			}
			return fakeapiserver.Fault{CutAfter: time.Minute}
		}})
		defer api.Close()
		_, end := watching(t.Context(), t, api)
		defer end()
		time.Sleep(5 * time.Minute)
		if asked.Load() == 0 {
			t.Error("it was not asked for")
		}
	})
}

func TestRunEndsAtOnceWhileTheApiserverRefusesTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Status: 429}
		}})
		defer api.Close()
		_, end := watching(t.Context(), t, api)
		time.Sleep(5 * time.Minute) // its back-off has grown by now
		began := time.Now()
		end()
		if took := time.Since(began); took > 0 {
			t.Errorf("Run ended %v after its context", took)
		}
	})
}

func TestAnApiserverThatDoesNotAnswerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Hang: true}
		}})
		defer api.Close()
		r, end := watching(t.Context(), t, api)
		said := func() string {
			synctest.Wait()
			var message string
			r.do(func() { message = r.health["apiserver"] })
			return message
		}
		time.Sleep(silentFor - time.Second)
		if got := said(); got != "" {
			t.Errorf("too early: %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := said(); !strings.Contains(got, "no answer within 15s") || !strings.Contains(got, "check that the apiserver runs") {
			t.Errorf("health says %q", got)
		}
		end()
	})
}

// client-go gives an empty watch and no error when the connection breaks before there
// is an answer.
func TestAnApiserverThatIsAwayIsNotSaidToBeThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
			if away.Load() && q.Verb == "watch" {
				return fakeapiserver.Fault{Drop: true}
			}
			return fakeapiserver.Fault{CutAfter: 10 * time.Second}
		}})
		defer api.Close()
		r := newRecorder()
		s, err := New(Config{NodeName: "n"}, Deps{Client: api.Client(), Mirrors: r, Health: reporter{r}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx, r) }()
		time.Sleep(5 * time.Second)
		away.Store(true)
		time.Sleep(15 * time.Second)
		for range 60 {
			time.Sleep(time.Second)
			synctest.Wait()
			r.do(func() {
				if r.health["apiserver"] == "" {
					t.Error("it is said to be there")
				}
			})
			if t.Failed() {
				break
			}
		}
		cancel()
		<-done
	})
}

func TestAnApiserverThatRefusesIsNotLoggedAtEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Status: 403}
		}})
		defer api.Close()
		var log strings.Builder
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		r, end := watching(klog.NewContext(t.Context(), logger), t, api)
		// Not longer: the library holds back what it logs itself, by the real clock.
		time.Sleep(time.Minute)
		end()
		if lines := strings.Count(log.String(), "\n"); lines > 0 { // health says it, and is logged when it changes
			t.Errorf("%d lines of refusals:\n%.500s", lines, log.String())
		}
		if got := r.health["apiserver"]; !strings.Contains(got, "may read pods") {
			t.Errorf("health says %q", got)
		}
	})
}

// client-go's reflector asks an apiserver that calls everything too old without a pause.
func TestAnApiserverThatCallsTheNewestTooOldIsNotAskedWithoutAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int64
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			if asked.Add(1) == 1000 {
				cancel() // the test would not end
			}
			return fakeapiserver.Fault{Status: http.StatusGone}
		}})
		defer api.Close()
		_, end := watching(ctx, t, api)
		time.Sleep(time.Minute)
		end()
		if n := asked.Load(); n < 5 || n > 100 {
			t.Errorf("asked %d times in a minute", n)
		}
	})
}

// Each pod is admitted beside those that were there before it, also by a podsync that
// has just been started and finds them all at once.
func TestPodsOfAListComeOldestFirst(t *testing.T) {
	r := newRecorder()
	s, err := New(Config{NodeName: "n"}, Deps{Mirrors: r, Health: reporter{r}})
	if err != nil {
		t.Fatal(err)
	}
	store := &apiStore{sources: s, sink: r, names: map[types.NamespacedName]apiPod{}, data: &versions{}}
	var list []any
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, name := range []string{"newest", "old", "older", "oldest"} {
		pod := apiPodOf(name, "n", nil)
		pod.UID, pod.CreationTimestamp = types.UID(name), metav1.NewTime(began.Add(-time.Duration(i)*time.Hour))
		list = append(list, pod)
	}
	if err := store.Replace(list, "1"); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(r.log, ", "), "set oldest, set older, set old, set newest, ready api"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// The scheduler may find a place for an old pod last, while podsync is away.
func TestPodsOfAListThatHaveBegunComeBeforeThoseThatHaveNot(t *testing.T) {
	r := newRecorder()
	s, err := New(Config{NodeName: "n"}, Deps{Mirrors: r, Health: reporter{r}})
	if err != nil {
		t.Fatal(err)
	}
	store := &apiStore{sources: s, sink: r, names: map[types.NamespacedName]apiPod{}, data: &versions{}}
	began := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	waited, runs := apiPodOf("waited", "n", nil), apiPodOf("runs", "n", nil)
	waited.UID, waited.CreationTimestamp = "waited", metav1.NewTime(began.Add(-time.Hour))
	runs.UID, runs.CreationTimestamp, runs.Status.StartTime = "runs", began, &began
	if err := store.Replace([]any{waited, runs}, "1"); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(r.log, ", "), "set runs, set waited, ready api"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

func TestTheVersionOfAListIsToldBeforeItsPods(t *testing.T) {
	for _, noWatchList := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			api := fakeapiserver.New(fakeapiserver.Config{NoWatchList: noWatchList})
			defer api.Close()
			pod, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), apiPodOf("a", "n", nil), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r, told := newRecorder(), 0
			s, err := New(Config{NodeName: "n"}, Deps{Client: api.Client(), Listed: func(version string, pods []*v1.Pod) {
				if told++; version != pod.ResourceVersion || len(pods) != 1 || pods[0].UID != pod.UID || len(r.names()) != 0 {
					t.Errorf("no watch list %v: a list of version %s with %d pods, of which %v were set", noWatchList, version, len(pods), r.names())
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = s.Run(ctx, r) }()
			time.Sleep(time.Second)
			if cancel(); told != 1 {
				t.Errorf("no watch list %v: told %d times", noWatchList, told)
			}
			<-done
		})
	}
}

// A proxy that answers for an apiserver says of no pod that it is not wanted.
func TestWhatIsNoAnswerOfAnApiserverEndsNoPods(t *testing.T) {
	quiet := utilruntime.ErrorHandlers // one of them waits, by the time outside the bubble
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = quiet })
	kinds := append(fakeapiserver.AllNonsense(),
		fakeapiserver.Nonsense{Name: "a watch that begins with nothing, of no version", Body: `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`},
		fakeapiserver.Nonsense{Name: "a watch of pods without names", Body: `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1"}}`},
		fakeapiserver.Nonsense{Name: "a list of another node's pods", Body: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"p","uid":"u"},"spec":{"nodeName":"m"}}]}`},
		fakeapiserver.Nonsense{Name: "a watch of another node's pods", Body: `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","uid":"u","resourceVersion":"7"},"spec":{"nodeName":"m"}}}`},
		fakeapiserver.Nonsense{Name: "a list of pods without names", Body: `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{}]}`})
	for _, kind := range kinds {
		for _, noWatchList := range []bool{false, true} {
			for _, early := range []bool{false, true} {
				name := fmt.Sprintf("%s, no watch list %v, from the start %v", kind.Name, noWatchList, early)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { answersNonsense(t, name, kind, noWatchList, early) })
				})
			}
		}
	}
}

func answersNonsense(t *testing.T, name string, kind fakeapiserver.Nonsense, noWatchList, early bool) {
	var nonsense atomic.Bool
	nonsense.Store(early)
	api := fakeapiserver.New(fakeapiserver.Config{NoWatchList: noWatchList, Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
		if !nonsense.Load() {
			return fakeapiserver.Fault{}
		}
		return fakeapiserver.Fault{Nonsense: &kind}
	}})
	defer api.Close()
	if _, err := api.Admin().CoreV1().Pods("default").Create(t.Context(), apiPodOf("kept", "n", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r, end := watching(t.Context(), t, api)
	defer end()
	time.Sleep(time.Minute)
	if early {
		if got := r.names(); len(got) != 0 || len(r.readies()) != 0 {
			t.Errorf("%s: ready %v, with pods %v", name, r.readies(), got)
		}
	} else {
		nonsense.Store(true)
		api.Compact()
		api.DropWatches()
		time.Sleep(10 * time.Minute)
		if got := r.names(); !slices.Equal(got, []string{"kept"}) || slices.Contains(r.logged(), "remove kept") {
			t.Errorf("%s: pods %v, log %v", name, got, r.logged())
		}
	}
	if r.trouble("apiserver") == "" && !strings.Contains(name, "a watch") {
		t.Errorf("%s: nothing is wrong with the apiserver", name)
	}
	nonsense.Store(false)
	time.Sleep(time.Minute)
	if got := r.names(); !slices.Equal(got, []string{"kept"}) || len(r.readies()) != 1 || r.trouble("apiserver") != "" {
		t.Errorf("%s: a minute after it is over: pods %v, ready %v, apiserver %q", name, got, r.readies(), r.trouble("apiserver"))
	}
}
