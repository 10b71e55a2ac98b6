package rows

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/polylet/polylet/test/bench/internal/stage"
)

// podWatch tells when pods came into a state. Every event is put before every
// question that stands, so that a state that lasts a millisecond is seen, too.
type podWatch struct {
	watch watch.Interface

	mu     sync.Mutex
	latest map[string]*corev1.Pod // nil: gone
	asked  []question
}

type question struct {
	name   string
	is     func(*corev1.Pod) bool
	answer chan time.Time
}

func watchPods(ctx context.Context, st *stage.Stage) (*podWatch, error) {
	w, err := st.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	p := &podWatch{watch: w, latest: map[string]*corev1.Pod{}}
	go p.follow()
	return p, nil
}

func (p *podWatch) stop() { p.watch.Stop() }

func (p *podWatch) follow() {
	for event := range p.watch.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			p.take(pod, event.Type == watch.Deleted, time.Now())
		}
	}
}

func (p *podWatch) take(pod *corev1.Pod, gone bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := pod.Name
	if gone {
		pod = nil
	}
	p.latest[name] = pod
	open := p.asked[:0]
	for _, q := range p.asked {
		if q.name == name && q.is(pod) {
			q.answer <- now
			continue
		}
		open = append(open, q)
	}
	p.asked = open
}

// when returns a channel that gets the moment at which the pod is so, now at
// the earliest. A pod that is gone is asked about as nil.
func (p *podWatch) when(name string, is func(*corev1.Pod) bool) <-chan time.Time {
	answer := make(chan time.Time, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod, seen := p.latest[name]; seen && is(pod) {
		answer <- time.Now()
		return answer
	}
	p.asked = append(p.asked, question{name, is, answer})
	return answer
}

// pod returns the pod as it was seen last.
func (p *podWatch) pod(name string) *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest[name]
}

func ready(p *corev1.Pod) bool    { return p != nil && stage.IsReady(p) }
func notReady(p *corev1.Pod) bool { return p != nil && !stage.IsReady(p) }
func running(p *corev1.Pod) bool  { return p != nil && p.Status.Phase == corev1.PodRunning }
func gone(p *corev1.Pod) bool     { return p == nil }

// moment waits for what when has promised.
func moment(ctx context.Context, what string, answer <-chan time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, rowWithin)
	defer cancel()
	select {
	case at := <-answer:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("wait until %s: %w", what, ctx.Err())
	}
}

// up creates the pod and returns it once it is Ready.
func (m *rows) up(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	isUp := m.pods.when(pod.Name, ready)
	if err := m.create(ctx, pod); err != nil {
		return nil, err
	}
	if _, err := moment(ctx, "pod "+pod.Name+" is Ready", isUp); err != nil {
		return nil, err
	}
	return m.pods.pod(pod.Name), nil
}

func (m *rows) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := m.st.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return nil
}

// down deletes the pod and returns once it is gone.
func (m *rows) down(ctx context.Context, name string) error {
	if err := m.st.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	_, err := moment(ctx, "pod "+name+" is gone", m.pods.when(name, gone))
	return err
}

// numbered names the pods from one number to the one before another.
func numbered(prefix string, from, to int) []string {
	var names []string
	for n := from; n < to; n++ {
		names = append(names, fmt.Sprintf("%s-%d", prefix, n))
	}
	return names
}

// addPodsOf creates the named pods at once and waits until all are Ready.
func (m *rows) addPodsOf(ctx context.Context, names []string, build func(name string) *corev1.Pod) error {
	_, err := stage.Each(names, func(name string) error {
		_, err := m.up(ctx, build(name))
		return err
	})
	return err
}

// remove deletes the first so many pods of a prefix and waits until all are gone.
func (m *rows) remove(ctx context.Context, prefix string, to int) error {
	_, err := stage.Each(numbered(prefix, 0, to), func(name string) error { return m.down(ctx, name) })
	return err
}
