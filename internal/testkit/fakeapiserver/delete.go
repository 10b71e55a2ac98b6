package fakeapiserver

import (
	"encoding/json"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

func (q *request) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	if len(q.body) > 0 {
		// Protobuf bodies name their own type; JSON ones may leave it out.
		if json.Valid(q.body) {
			if err := json.Unmarshal(q.body, opts); err != nil {
				return nil, apierrors.NewBadRequest("decode the DeleteOptions: " + err.Error())
			}
		} else if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(q.body, nil, opts); err != nil {
			return nil, apierrors.NewBadRequest("decode the DeleteOptions: " + err.Error())
		}
	}
	if text := q.query.Get("gracePeriodSeconds"); text != "" && opts.GracePeriodSeconds == nil {
		var n int64
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			return nil, apierrors.NewBadRequest("gracePeriodSeconds: " + err.Error())
		}
		opts.GracePeriodSeconds = &n
	}
	return opts, nil
}

func (s *Server) delete(q *request) (int, any, error) {
	opts, err := q.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.findLocked(q)
	if err != nil {
		return 0, nil, err
	}
	m := metaOf(e.obj)
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != m.GetUID() {
			return 0, nil, conflict(q, "Precondition failed: UID in precondition: "+string(*p.UID)+", UID in object meta: "+string(m.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion() {
			return 0, nil, conflict(q, "Precondition failed: ResourceVersion in precondition: "+*p.ResourceVersion+", ResourceVersion in object meta: "+m.GetResourceVersion())
		}
	}
	last, gone := s.removeLocked(q, e, opts.GracePeriodSeconds)
	if _, isPod := last.obj.(*corev1.Pod); isPod || !gone {
		return http.StatusOK, q.present(last), nil
	}
	return http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: q.Name, Group: q.Group, Kind: q.Resource, UID: m.GetUID()},
	}, nil
}

// removeLocked deletes, or marks for deletion what has time or finalizers left.
func (s *Server) removeLocked(q *request, e *entry, asked *int64) (last *entry, gone bool) {
	m := metaOf(e.obj)
	grace := graceOf(e.obj, asked)
	if m.GetDeletionTimestamp() != nil {
		left := int64(0)
		if p := m.GetDeletionGracePeriodSeconds(); p != nil {
			left = *p
		}
		// A later request can shorten the time, not prolong it.
		if asked == nil || grace > left {
			grace = left
		}
		if grace == left && (grace > 0 || len(m.GetFinalizers()) > 0) {
			return e, false
		}
	}
	free := grace == 0 && len(m.GetFinalizers()) == 0
	if _, isPod := e.obj.(*corev1.Pod); free && !isPod {
		return s.drop(q.table, q.UserAgent, e), true
	}
	marked := e.obj.DeepCopyObject()
	mm := metaOf(marked)
	// Counted from the first request, as the apiserver does when the time is shortened.
	at := metav1.NewTime(now().Add(time.Duration(grace) * time.Second))
	if old := m.GetDeletionTimestamp(); old != nil {
		began := old.Add(-time.Duration(*m.GetDeletionGracePeriodSeconds()) * time.Second)
		at = metav1.NewTime(began.Add(time.Duration(grace) * time.Second))
	}
	mm.SetDeletionTimestamp(&at)
	mm.SetDeletionGracePeriodSeconds(&grace)
	if q.res.generation {
		mm.SetGeneration(mm.GetGeneration() + 1)
	}
	e = s.put(q.table, "delete", "", q.UserAgent, e, marked)
	if free {
		// Pods are marked first even when they go at once: watchers see both steps.
		return s.drop(q.table, q.UserAgent, e), true
	}
	return e, false
}

// graceOf is how long a deletion leaves. Only pods have time: none when they run nowhere
// or have finished.
func graceOf(obj runtime.Object, asked *int64) int64 {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return 0
	}
	grace := int64(30)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if asked != nil {
		grace = *asked
	}
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return 0
	}
	if grace < 0 {
		return 1
	}
	return grace
}

// graceOver says that nothing but finalizers held the object back.
func graceOver(obj runtime.Object) bool {
	p := metaOf(obj).GetDeletionGracePeriodSeconds()
	return p == nil || *p == 0
}

func (s *Server) deleteCollection(q *request) (int, any, error) {
	sel, err := s.selectorOf(q)
	if err != nil {
		return 0, nil, err
	}
	opts, err := q.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range q.table.keys() {
		if e := q.table.objects[k]; sel.matches(e.obj) {
			s.removeLocked(q, e, opts.GracePeriodSeconds)
		}
	}
	return http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
}
