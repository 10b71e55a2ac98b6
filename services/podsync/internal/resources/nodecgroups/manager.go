package nodecgroups

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

func (c *Cgroups) set(m cgroup.Manager) {
	c.once.Do(func() {
		c.stand = m
		close(c.ready)
	})
}

func (c *Cgroups) get(ctx context.Context) (cgroup.Manager, error) {
	select {
	case <-c.ready:
		return c.stand, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the node's cgroups: %w", ctx.Err())
	}
}

// Stand waits until the cgroups do.
func (c *Cgroups) Stand(ctx context.Context) error {
	_, err := c.get(ctx)
	return err
}

// Setup implements cgroup.Manager.
func (c *Cgroups) Setup(ctx context.Context, limits cgroup.Limits) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return m.Setup(ctx, limits)
}

// ParentOf implements cgroup.Manager.
func (c *Cgroups) ParentOf(ctx context.Context, pod *v1.Pod) (string, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	return m.ParentOf(ctx, pod)
}

// Ensure implements cgroup.Manager.
func (c *Cgroups) Ensure(ctx context.Context, pod *v1.Pod) (string, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	return m.Ensure(ctx, pod)
}

// Raise implements cgroup.Manager.
func (c *Cgroups) Raise(ctx context.Context, pod *v1.Pod) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return m.Raise(ctx, pod)
}

// Fit implements cgroup.Manager.
func (c *Cgroups) Fit(ctx context.Context, pod *v1.Pod) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return m.Fit(ctx, pod)
}

// Remove implements cgroup.Manager.
func (c *Cgroups) Remove(ctx context.Context, uid types.UID) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return m.Remove(ctx, uid)
}

// List implements cgroup.Manager; it is empty before the cgroups stand.
func (c *Cgroups) List() ([]types.UID, error) {
	select {
	case <-c.ready:
		return c.stand.List()
	default:
		return nil, nil
	}
}
