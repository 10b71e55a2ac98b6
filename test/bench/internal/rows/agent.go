package rows

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
)

// agentKilled kills the whole agent while pods run and starts it again, with a
// new pod waiting.
func (m *rows) agentKilled(ctx context.Context, prefix string, pods int) error {
	others := numbered(prefix, 0, pods)
	for n := range restarts {
		if err := stage.Sleep(ctx, stage.Settle); err != nil {
			return err
		}
		if err := m.killAgent(ctx, fmt.Sprintf("after-%d", n), fmt.Sprintf("agent killed and started again with %d pods", pods), others); err != nil {
			return err
		}
	}
	return nil
}

func (m *rows) killAgent(ctx context.Context, name, what string, others []string) error {
	var killed sync.WaitGroup
	for _, p := range m.st.Node.Processes {
		killed.Go(p.Kill)
	}
	killed.Wait()
	isUp := m.pods.when(name, ready)
	if err := m.create(ctx, stage.Pod(name)); err != nil {
		return err
	}
	renewed, err := m.lease(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, p := range m.st.Node.Processes {
		if err := p.Launch(); err != nil {
			return err
		}
	}
	at, err := moment(ctx, "the lease is renewed", renewed)
	if err != nil {
		return err
	}
	m.c.Add(what+": lease renewed, ms", report.Milliseconds(at.Sub(began)))
	if at, err = moment(ctx, "pod "+name+" is Ready", isUp); err != nil {
		return err
	}
	m.c.Add(what+": new pod Ready, ms", report.Milliseconds(at.Sub(began)))
	for _, other := range others {
		if p := m.pods.pod(other); !ready(p) || restartsOf(p) > 0 {
			return fmt.Errorf("pod %s did not survive the agent's end: %+v", other, p)
		}
	}
	return m.down(ctx, name)
}

func restartsOf(p *corev1.Pod) (n int32) {
	for _, cs := range p.Status.ContainerStatuses {
		n += cs.RestartCount
	}
	return n
}

// lease tells when the node's lease is renewed next.
func (m *rows) lease(ctx context.Context) (<-chan time.Time, error) {
	leases := m.st.Cluster.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, err := leases.Get(ctx, stage.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the node's lease: %w", err)
	}
	w, err := leases.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", stage.NodeName).String(), ResourceVersion: now.ResourceVersion,
	})
	if err != nil {
		return nil, fmt.Errorf("watch the node's lease: %w", err)
	}
	renewed := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		for event := range w.ResultChan() {
			if l, ok := event.Object.(*coordinationv1.Lease); ok && l.ResourceVersion != now.ResourceVersion {
				renewed <- time.Now()
				return
			}
		}
	}()
	return renewed, nil
}
