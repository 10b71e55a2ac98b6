package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/services/podsync/internal/cluster/ctxclock"
	"github.com/polylet/polylet/services/podsync/internal/cluster/newest"
	"github.com/polylet/polylet/services/podsync/internal/cluster/watchlimit"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// runAPI follows the pods of this node. client-go's reflector lists, watches
// and resumes; what it reads goes straight into the sink, and of the pods no
// more is kept here than their names. It says nothing itself: it would at each
// attempt, every 5 s while the apiserver refuses, and reached tells of it once.
func (s *Sources) runAPI(ctx context.Context, sink Sink) error {
	silent := logr.Discard()
	data := &versions{restored: func(err error) { s.restored(klog.FromContext(ctx), err) }}
	store := &apiStore{sources: s, sink: sink, names: map[types.NamespacedName]apiPod{}, data: data}
	reflector := cache.NewReflectorWithOptions(s.podsOfNode(data), &v1.Pod{}, store, cache.ReflectorOptions{
		Logger:  &silent,
		Clock:   ctxclock.New(ctx),
		Name:    "pods of " + s.cfg.NodeName,
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 7, Cap: 5 * time.Second},
	})
	reflector.RunWithContext(klog.NewContext(ctx, silent))
	return nil
}

func (s *Sources) podsOfNode(data *versions) cache.ListerWatcher {
	selector := fields.OneTermEqualSelector("spec.nodeName", s.cfg.NodeName).String()
	pods := s.deps.Client.CoreV1().Pods(metav1.NamespaceAll)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			data.saw(o.ResourceVersion)
			defer s.asked().Stop()
			list, err := pods.List(ctx, o)
			err = answer.List(list, err)
			s.reached(err)
			return list, err
		},
		WatchFuncWithContext: watchlimit.Of(func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			data.saw(o.ResourceVersion)
			defer s.asked().Stop()
			if err := newest.Restored(ctx, &o, s.deps.Client.CoreV1().Pods(metav1.NamespaceDefault).List); err != nil {
				data.wentBack(err)
				return nil, err
			}
			w, err := pods.Watch(ctx, o)
			s.reached(cmp.Or(err, unanswered(w)))
			return w, newest.Refused(o, err)
		}),
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, s.deps.Client)
}

func (s *Sources) restored(log klog.Logger, err error) {
	log.Info("What is read of the apiserver is read anew", "err", err)
	if s.deps.Restored != nil {
		s.deps.Restored()
	}
}

// silentFor is how long the apiserver may take to begin an answer until that is
// said: the client's library tries again for minutes before it tells.
const silentFor = 15 * time.Second

// asked says that there is no answer, unless it is stopped before.
func (s *Sources) asked() *time.Timer {
	return time.AfterFunc(silentFor, func() { s.reached(fmt.Errorf("no answer within %s", silentFor)) })
}

// unanswered is why a watch that client-go gave without an error is none: it gives an
// empty one when the connection breaks, or the time is over, before there is an answer.
func unanswered(w watch.Interface) error {
	if reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
		return errors.New("the connection broke, or timed out, before there was an answer")
	}
	return nil
}

func (s *Sources) reached(err error) {
	if err == nil {
		s.deps.Health.Set("apiserver", true, "")
		return
	}
	s.deps.Health.Set("apiserver", false, fmt.Sprintf("list and watch the pods of node %s: %v; check that the apiserver runs and is reachable and that the kubeconfig's user may read pods; it is tried again by itself", s.cfg.NodeName, err))
}

// apiPod is what is remembered of a pod.
type apiPod struct {
	uid    types.UID
	mirror bool
}

// apiStore is the reflector's store: it passes pods on. Only the reflector's
// goroutine calls it.
type apiStore struct {
	sources *Sources
	sink    Sink
	names   map[types.NamespacedName]apiPod
	data    *versions
	ready   bool
}

var _ cache.ReflectorStore = (*apiStore)(nil)

// Add implements cache.ReflectorStore.
func (a *apiStore) Add(obj any) error { return a.set(obj) }

// Update implements cache.ReflectorStore.
func (a *apiStore) Update(obj any) error { return a.set(obj) }

func (a *apiStore) set(obj any) error {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return fmt.Errorf("take in a pod from the apiserver: got a %T", obj)
	}
	if err := a.sources.isOurs(pod); err != nil {
		return a.refused(err)
	}
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if old, known := a.names[name]; known && old.uid != pod.UID {
		a.remove(name) // its DELETED event was lost
	}
	now := apiPod{uid: pod.UID, mirror: podutil.Mirror(pod)}
	a.names[name] = now
	if now.mirror {
		a.sources.deps.Mirrors.SetMirror(pod)
		return nil
	}
	// Nobody reads managed fields here, and they are a third of a pod's memory.
	pod.ManagedFields = nil
	if src, ok := pod.Annotations[podutil.AnnotationSource]; ok && src != API {
		// Where a pod comes from is not the user's to say.
		pod.Annotations = maps.Clone(pod.Annotations)
		pod.Annotations[podutil.AnnotationSource] = API
	}
	a.sink.Set(pod, API)
	return nil
}

// Delete implements cache.ReflectorStore.
func (a *apiStore) Delete(obj any) error {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return fmt.Errorf("take in the end of a pod from the apiserver: got a %T", obj)
	}
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if known, ok := a.names[name]; ok && known.uid == pod.UID {
		a.remove(name)
	}
	return nil
}

func (a *apiStore) remove(name types.NamespacedName) {
	known := a.names[name]
	delete(a.names, name)
	if known.mirror {
		a.sources.deps.Mirrors.RemoveMirror(known.uid)
		return
	}
	a.sink.Remove(known.uid, API)
}

// Replace implements cache.ReflectorStore: list is all that there is. Those that have
// begun come first, then the oldest: a pod is admitted beside those before it. What no
// apiserver would say is refused as a whole, and the pods go on.
func (a *apiStore) Replace(list []any, version string) error {
	if err := answer.Version(version); err != nil {
		return a.refused(err)
	}
	pods := make([]*v1.Pod, 0, len(list))
	for _, obj := range list {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return a.refused(fmt.Errorf("a list of pods with a %T", obj))
		}
		if err := a.sources.isOurs(pod); err != nil {
			return a.refused(err)
		}
		pods = append(pods, pod)
	}
	a.data.listed(version)
	slices.SortStableFunc(pods, earlier)
	a.sources.deps.Listed(version, pods)
	present := make(map[types.NamespacedName]bool, len(pods))
	for _, pod := range pods {
		present[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = true
	}
	for name := range a.names {
		if !present[name] {
			a.remove(name)
		}
	}
	for _, pod := range pods {
		if err := a.set(pod); err != nil {
			return err
		}
	}
	if !a.ready {
		a.ready = true
		a.sources.deps.Mirrors.MirrorsReady()
		a.sink.Ready(API)
	}
	return nil
}

// isOurs returns an error when a pod is none that was asked for. One of another node is
// brought by whoever does not look at what is asked: all of the cluster's would run here.
func (s *Sources) isOurs(pod *v1.Pod) error {
	if err := answer.Whole(pod); err != nil {
		return fmt.Errorf("a pod was answered without %w", err)
	}
	if pod.Spec.NodeName != s.cfg.NodeName {
		return fmt.Errorf("pod %s of node %q was answered", klog.KObj(pod), pod.Spec.NodeName)
	}
	return nil
}

func (a *apiStore) refused(err error) error {
	a.sources.reached(err)
	return err
}

// earlier orders pods by whether they have begun, by when they were created, and by name.
func earlier(p, q *v1.Pod) int {
	return cmp.Or(begun(q)-begun(p), p.CreationTimestamp.Compare(q.CreationTimestamp.Time), cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
}

// begun is 1 of a pod of which a podsync has told that it was admitted, else 0.
func begun(pod *v1.Pod) int {
	if pod.Status.StartTime == nil {
		return 0
	}
	return 1
}

// Resync implements cache.ReflectorStore.
func (a *apiStore) Resync() error { return nil }
