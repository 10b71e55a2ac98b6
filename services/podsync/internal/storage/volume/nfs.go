package volume

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// nfsVolumes are directories of NFS servers, each mounted by itself for each pod that has
// it. Nothing of their files is changed, nor given to the pod's group.
type nfsVolumes struct{ set *Set }

// Setup mounts one that is in the pod's own spec.
func (d nfsVolumes) Setup(ctx context.Context, r Request) (Made, error) {
	source := r.Volume.NFS
	err := d.set.mountNFS(ctx, r.Pod.UID, source, r.Dir, asOptions(nil, source.ReadOnly))
	if err != nil {
		return Made{}, err
	}
	return Made{Path: r.Dir}, nil
}

// Teardown unmounts one, also a claim's, and one that another agent has mounted.
func (d nfsVolumes) Teardown(ctx context.Context, v Remains) error {
	if err := d.set.deps.Mounter.UnmountRemote(ctx, v.Dir); err != nil {
		return fmt.Errorf("volume %q: %w", v.Name, err)
	}
	return rmdir(v.Dir) // never what is in it
}

// claimedNFS mounts one that a claim is bound to.
func (s *Set) claimedNFS(ctx context.Context, uid types.UID, ref claims.Reference, pv *v1.PersistentVolume, dir string) error {
	return s.mountNFS(ctx, uid, pv.Spec.NFS, dir, asOptions(claims.MountOptions(pv), ref.ReadOnly))
}

// asOptions adds to mount options that nothing may be written; they are in order.
func asOptions(options []string, is bool) []string {
	if is {
		options = append(slices.Clone(options), "ro")
	}
	slices.Sort(options)
	return slices.Compact(options)
}

// ofOneServer is for how many volumes of a pod one server is asked at once: fewer than there are
// places, which are for other servers' volumes.
const ofOneServer = atOnce / 2

// askServer waits until a pod may ask a server for one more volume. Each that does not answer
// takes a thread and two programs, for longer than its volume is waited for, and whoever makes
// pods says how many there are.
func (s *Set) askServer(ctx context.Context, uid types.UID, server string) (done func(), err error) {
	st := s.known(uid)
	if st == nil {
		return nil, errTornDown
	}
	leave, err := st.lanes.enter(ctx, "server "+server, ofOneServer)
	if err != nil {
		return nil, err
	}
	select {
	case st.remotes <- struct{}{}:
		return func() { <-st.remotes; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// known is the state of a pod; nil when there is none.
func (s *Set) known(uid types.UID) *podState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid]
}

// mountNFS mounts a directory of a server unless it is mounted. Where that fails nothing
// stays. Two volumes of a pod may be of one claim, which is mounted once: it would else be
// mounted twice, one above the other, or be ended by the one that fails.
func (s *Set) mountNFS(ctx context.Context, uid types.UID, source *v1.NFSVolumeSource, dir string, options []string) error {
	end, err := s.handles.TakeWithin(ctx, dir)
	if err != nil {
		return err
	}
	defer end()
	mounted, err := s.deps.Mounter.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	done, err := s.askServer(ctx, uid, source.Server)
	if err != nil {
		return err
	}
	defer done()
	if err := makeDir(dir, 0o750); err != nil {
		return err
	}
	server := source.Server
	if ip, err := netip.ParseAddr(server); err == nil && ip.Is6() {
		server = "[" + server + "]"
	}
	if err := s.deps.Mounter.Remote(ctx, server+":"+source.Path, dir, "nfs", options); err != nil {
		// It may have been mounted all the same, by a program that was ended after that.
		if ended := s.deps.Mounter.UnmountRemote(context.WithoutCancel(ctx), dir); ended == nil {
			_ = rmdir(dir) // else with the pod's end
		}
		return err
	}
	return nil
}
