package userns

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

// Cgroups are the cgroups, with which a pod that has ended gives back its
// ids: nothing of it runs any more when its cgroup goes, though its object may
// stay for days.
type Cgroups struct {
	cgroup.Manager
	Users *Allocator
}

// Remove removes the pod's cgroup and then frees its ids.
func (c Cgroups) Remove(ctx context.Context, uid types.UID) error {
	if err := c.Manager.Remove(ctx, uid); err != nil {
		return err
	}
	return c.Users.Release(uid)
}
