package volume

import (
	"cmp"
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// Shown are the volumes, of which other services are told.
type Shown struct {
	*Set
	Table *podcache.Table
}

// Setup sets volumes of a pod up and shows what there is of them, also when some failed.
func (s Shown) Setup(ctx context.Context, pod *v1.Pod, volumes ...string) error {
	err := s.Set.Setup(ctx, pod, volumes...)
	rows := podcache.Volumes{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
	for _, i := range s.Volumes(pod.UID) {
		rows.Volumes = append(rows.Volumes, podcache.Volume{
			Name: i.Name, HostPath: i.HostPath, Ephemeral: i.Ephemeral, InMemory: i.InMemory, PVC: i.PVCName, Driven: i.Driven, Counted: i.Counted,
		})
	}
	s.Table.SetVolumes(rows)
	return err
}

// Teardown takes a pod's volumes down, and shows none from its beginning on. namespace is the
// pod's: so many of its volumes' servers are waited for at once. Where it is empty, no source
// knows the pod, and what the runtime has of it says that.
func (s Shown) Teardown(ctx context.Context, uid types.UID, namespace string) error {
	s.Table.SetVolumes(podcache.Volumes{UID: uid})
	return s.Set.Teardown(apart.For(ctx, cmp.Or(namespace, s.Table.Namespace(uid))), uid)
}
