package cgroup

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/metrics"
)

// Counted returns a Manager whose operations are counted.
func Counted(m Manager, metrics *metrics.Metrics) Manager { return counted{m, metrics} }

type counted struct {
	Manager
	metrics *metrics.Metrics
}

// Setup implements Manager.
func (c counted) Setup(ctx context.Context, limits Limits) error {
	defer c.metrics.Cgroup("update", time.Now())
	return c.Manager.Setup(ctx, limits)
}

// Ensure implements Manager.
func (c counted) Ensure(ctx context.Context, pod *v1.Pod) (string, error) {
	defer c.metrics.Cgroup("create", time.Now())
	return c.Manager.Ensure(ctx, pod)
}

// Remove implements Manager.
func (c counted) Remove(ctx context.Context, uid types.UID) error {
	defer c.metrics.Cgroup("destroy", time.Now())
	return c.Manager.Remove(ctx, uid)
}
