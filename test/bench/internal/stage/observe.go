package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Moments is when a pod was seen Ready and gone.
type Moments struct{ Ready, Gone time.Time }

// Observer follows all pods of the default namespace and notes the first
// moments of each.
type Observer struct {
	Watch watch.Interface

	mu      sync.Mutex
	seen    map[string]Moments
	changed chan struct{}
}

// Observe follows the pods until Watch is stopped.
func Observe(ctx context.Context, st *Stage) (*Observer, error) {
	w, err := st.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	o := &Observer{Watch: w, seen: map[string]Moments{}, changed: make(chan struct{}, 1)}
	go o.follow()
	return o, nil
}

func (o *Observer) follow() {
	for event := range o.Watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		now := time.Now()
		o.mu.Lock()
		m := o.seen[pod.Name]
		if m.Ready.IsZero() && IsReady(pod) {
			m.Ready = now
		}
		if event.Type == watch.Deleted {
			m.Gone = now
		}
		o.seen[pod.Name] = m
		o.mu.Unlock()
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
}

// Wait returns the moments of the pods once done is true of each.
func (o *Observer) Wait(ctx context.Context, names []string, done func(Moments) bool) (map[string]Moments, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	for {
		got := map[string]Moments{}
		o.mu.Lock()
		for _, name := range names {
			if m := o.seen[name]; done(m) {
				got[name] = m
			}
		}
		o.mu.Unlock()
		if len(got) == len(names) {
			return got, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("only %d of %d pods got there: %w", len(got), len(names), ctx.Err())
		case <-o.changed:
		}
	}
}
