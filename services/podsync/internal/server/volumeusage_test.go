package server

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

type measured map[string]error

func (u measured) Usage(_ context.Context, _ types.UID, name string) (volume.Usage, error) {
	return volume.Usage{
		Driver: "d", Available: 1, Capacity: 2, Used: 3, InodesFree: 4, Inodes: 5, InodesUsed: 6,
		Condition: &volume.Condition{Abnormal: true, Message: "m"},
	}, u[name]
}

func (measured) Standings(*v1.Pod, bool) []volume.Standing { return nil }

func TestTheUsageOfADriversVolumeIsServed(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		ask := func(name string) (*podsyncv1.GetVolumeUsageResponse, error) {
			return r.client.GetVolumeUsage(t.Context(), &podsyncv1.GetVolumeUsageRequest{PodUid: "u", Volume: name})
		}
		if _, err := ask("v"); status.Code(err) != codes.Unimplemented {
			t.Errorf("where nobody can be asked: %v", err)
		}
		r.server.deps.Volumes = measured{"none": volume.ErrNotDriven, "mute": volume.ErrNoUsage, "broken": errors.New("x")}
		got, err := ask("v")
		if err != nil || got.GetDriver() != "d" || got.GetAvailableBytes() != 1 || got.GetCapacityBytes() != 2 || got.GetUsedBytes() != 3 ||
			got.GetInodesFree() != 4 || got.GetInodes() != 5 || got.GetInodesUsed() != 6 || !got.GetCondition().GetAbnormal() || got.GetCondition().GetMessage() != "m" {
			t.Errorf("%v, %v", got, err)
		}
		for name, want := range map[string]codes.Code{"none": codes.NotFound, "mute": codes.Unimplemented} {
			if _, err := ask(name); status.Code(err) != want {
				t.Errorf("of %s: %v", name, err)
			}
		}
		if _, err := ask("broken"); err == nil {
			t.Error("a driver that fails has said something")
		}
	})
}
