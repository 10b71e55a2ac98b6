package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/polylet/polylet/test/harness/images"
)

const (
	// podWithin bounds every wait for pods.
	podWithin = 3 * time.Minute
	// nodeWithin bounds the wait for the Node.
	nodeWithin = time.Minute
)

// moments is when a pod was seen Ready and gone.
type moments struct{ ready, gone time.Time }

// observer follows all pods of the default namespace and notes the first
// moments of each.
type observer struct {
	watch watch.Interface

	mu      sync.Mutex
	seen    map[string]moments
	changed chan struct{}
}

func observe(ctx context.Context, st *stage) (*observer, error) {
	w, err := st.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	o := &observer{watch: w, seen: map[string]moments{}, changed: make(chan struct{}, 1)}
	go o.follow()
	return o, nil
}

func (o *observer) follow() {
	for event := range o.watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		now := time.Now()
		o.mu.Lock()
		m := o.seen[pod.Name]
		if m.ready.IsZero() && isReady(pod) {
			m.ready = now
		}
		if event.Type == watch.Deleted {
			m.gone = now
		}
		o.seen[pod.Name] = m
		o.mu.Unlock()
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
}

// wait returns the moments of the pods once done is true of each.
func (o *observer) wait(ctx context.Context, names []string, done func(moments) bool) (map[string]moments, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	for {
		got := map[string]moments{}
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

// measureNode measures single pods one after the other, then a burst.
func measureNode(ctx context.Context, s settings, st *stage, c *column) error {
	if err := waitForNode(ctx, st); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
	}
	o, err := observe(ctx, st)
	if err != nil {
		return err
	}
	defer o.watch.Stop()
	before, err := usageOf(st)
	if err != nil {
		return err
	}
	c.add("memory (PSS), no pods, MiB", before.pss)
	spent, err := costOf(ctx, st)
	if err != nil {
		return err
	}
	runtimeSpent, err := cpuOfRuntime(st)
	if err != nil {
		return err
	}
	for n := range s.samples {
		if err := life(ctx, st, o, []string{fmt.Sprintf("single-%d", n)}, c, "one pod", nil); err != nil {
			return err
		}
	}
	profiled, err := profileBurst(ctx, s, st)
	if err != nil {
		return err
	}
	if err := life(ctx, st, o, burstNames(s.burst), c, fmt.Sprintf("%d pods", s.burst), func() error {
		during, err := usageOf(st)
		c.add(fmt.Sprintf("memory (PSS), %d pods, MiB", s.burst), during.pss)
		return err
	}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(afterwards):
	}
	empty, err := waitUntilEmpty(ctx, st, 0)
	if err != nil {
		return err
	}
	now, err := costOf(ctx, st)
	if err != nil {
		return err
	}
	addCost(c, spent, now, s.samples+s.burst)
	if !empty {
		if empty, err = waitUntilEmpty(ctx, st, removedAtLast); err != nil {
			return err
		}
	}
	if !empty {
		return fmt.Errorf("sandboxes of pods that are gone are still there after %v", afterwards+removedAtLast)
	}
	if err := addRuntimeCost(st, c, runtimeSpent, s.samples+s.burst); err != nil {
		return err
	}
	return profiled()
}

// life creates the pods, waits until all are Ready, deletes them and waits until
// all are gone.
func life(ctx context.Context, st *stage, o *observer, names []string, c *column, what string, whileUp func() error) error {
	pods := st.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	began := time.Now()
	created, err := each(names, func(name string) error {
		_, err := pods.Create(ctx, benchPod(name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	up, err := o.wait(ctx, names, func(m moments) bool { return !m.ready.IsZero() })
	if err != nil {
		return fmt.Errorf("wait for Ready: %w", err)
	}
	c.addPods(what+": create → Ready", created, began, up, func(m moments) time.Time { return m.ready })
	if whileUp != nil {
		if err := whileUp(); err != nil {
			return err
		}
	}
	began = time.Now()
	deleted, err := each(names, func(name string) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) })
	if err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	gone, err := o.wait(ctx, names, func(m moments) bool { return !m.gone.IsZero() })
	if err != nil {
		return fmt.Errorf("wait for gone: %w", err)
	}
	c.addPods(what+": delete → gone", deleted, began, gone, func(m moments) time.Time { return m.gone })
	return nil
}

// each does the same for every name at once and returns when each was begun.
func each(names []string, do func(string) error) (map[string]time.Time, error) {
	began := map[string]time.Time{}
	failed := make(chan error, len(names))
	for _, name := range names {
		began[name] = time.Now()
		go func() { failed <- do(name) }()
	}
	var first error
	for range names {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	return began, first
}

func burstNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("burst-%d", i)
	}
	return names
}

// benchPod ends at once on SIGTERM and has no probe, so that only the way to
// running and back is timed.
func benchPod(name string) *corev1.Pod {
	grace, no := int64(5), false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
			Containers:  []corev1.Container{{Name: "app", Image: images.TestApp, Args: []string{"sleep"}, ImagePullPolicy: corev1.PullIfNotPresent}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func waitForNode(ctx context.Context, st *stage) error {
	ctx, cancel := context.WithTimeout(ctx, nodeWithin)
	defer cancel()
	for {
		n, err := st.cluster.Client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err == nil {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the Node was not Ready within %s (%v)%s", nodeWithin, err, st.node.Logs(20))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
