package pods

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/bench/internal/usage"
)

// measureNode measures single pods one after the other, then a burst.
func measureNode(ctx context.Context, s Settings, st *stage.Stage, c *report.Column) error {
	if err := st.WaitForNode(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stage.Settle):
	}
	o, err := stage.Observe(ctx, st)
	if err != nil {
		return err
	}
	defer o.Watch.Stop()
	before, err := usage.Of(st.Node)
	if err != nil {
		return err
	}
	c.Add("memory (PSS), no pods, MiB", before.PSS)
	spent, err := costOf(ctx, st)
	if err != nil {
		return err
	}
	runtimeSpent, err := cpuOfRuntime(st)
	if err != nil {
		return err
	}
	for n := range s.Samples {
		if err := life(ctx, st, o, []string{fmt.Sprintf("single-%d", n)}, c, "one pod", nil); err != nil {
			return err
		}
	}
	profiled, err := profileBurst(ctx, s, st)
	if err != nil {
		return err
	}
	if err := life(ctx, st, o, stage.BurstNames(s.Burst), c, fmt.Sprintf("%d pods", s.Burst), func() error {
		during, err := usage.Of(st.Node)
		c.Add(fmt.Sprintf("memory (PSS), %d pods, MiB", s.Burst), during.PSS)
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
	addCost(c, spent, now, s.Samples+s.Burst)
	if !empty {
		if empty, err = waitUntilEmpty(ctx, st, removedAtLast); err != nil {
			return err
		}
	}
	if !empty {
		return fmt.Errorf("sandboxes of pods that are gone are still there after %v", afterwards+removedAtLast)
	}
	if err := addRuntimeCost(st, c, runtimeSpent, s.Samples+s.Burst); err != nil {
		return err
	}
	return profiled()
}

// life creates the pods, waits until all are Ready, deletes them and waits until
// all are gone.
func life(ctx context.Context, st *stage.Stage, o *stage.Observer, names []string, c *report.Column, what string, whileUp func() error) error {
	pods := st.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	began := time.Now()
	created, err := stage.Each(names, func(name string) error {
		_, err := pods.Create(ctx, stage.Pod(name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	up, err := o.Wait(ctx, names, func(m stage.Moments) bool { return !m.Ready.IsZero() })
	if err != nil {
		return fmt.Errorf("wait for Ready: %w", err)
	}
	addPods(c, what+": create → Ready", created, began, up, func(m stage.Moments) time.Time { return m.Ready })
	if whileUp != nil {
		if err := whileUp(); err != nil {
			return err
		}
	}
	began = time.Now()
	deleted, err := stage.Each(names, func(name string) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) })
	if err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	gone, err := o.Wait(ctx, names, func(m stage.Moments) bool { return !m.Gone.IsZero() })
	if err != nil {
		return fmt.Errorf("wait for gone: %w", err)
	}
	addPods(c, what+": delete → gone", deleted, began, gone, func(m stage.Moments) time.Time { return m.Gone })
	return nil
}
