package volume

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// isDisk says whether a volume in a pod's spec is a disk of an iSCSI target or of a Fibre
// Channel fabric.
func isDisk(v *v1.Volume) bool { return v.ISCSI != nil || v.FC != nil }

// setupDisk makes a disk's volume that is in the pod's own spec.
func (s *Set) setupDisk(ctx context.Context, r Request) (Made, error) {
	var before Made // by a previous run
	if mounted, err := s.deps.Mounter.Mounted(r.Dir); err == nil && mounted {
		before.Path = r.Dir
	}
	if err := s.holdDisk(ctx, r); err != nil {
		return before, err
	}
	return s.making(ctx, r.Pod.UID, r.Volume.Name, before, func(ctx context.Context, _ *chown) (Made, error) {
		return s.makeDisk(ctx, r)
	})
}

// makeDisk has a disk's volume made. A disk may answer as little as a server.
func (s *Set) makeDisk(ctx context.Context, r Request) (Made, error) {
	done, err := s.askServer(ctx, r.Pod.UID, portal(r))
	if err != nil {
		return Made{}, err
	}
	defer done()
	return s.deps.Disks.Setup(ctx, r)
}

// portal is the iSCSI target's, which may not answer; of a fabric there is one.
func portal(r Request) string {
	switch {
	case r.Volume.ISCSI != nil:
		return r.Volume.ISCSI.TargetPortal
	case r.PV != nil && r.PV.Spec.ISCSI != nil:
		return r.PV.Spec.ISCSI.TargetPortal
	}
	return pluginFC
}

// mapper is a Driver that says where it shows a device for all pods.
type mapper interface {
	Global(r Request) string
}

// globalOf is where a claim's disk is shown as a device; empty for what is none.
func (s *Set) globalOf(r Request) string {
	if d, may := s.deps.Disks.(mapper); may && claims.IsDisk(r.PV) && claims.IsDevice(r.PV) {
		return d.Global(r)
	}
	return ""
}

// attachDisk waits until a disk that a claim is bound to may be used on the node, and says
// where it lies.
func (s *Set) attachDisk(ctx context.Context, r *Request) error {
	plugin := pluginISCSI
	if r.PV.Spec.FC != nil {
		plugin = pluginFC
	}
	r.Dir = s.volumeDir(r.Pod.UID, plugin, r.PV.Name)
	if claims.IsDevice(r.PV) {
		r.Dir = s.deviceLink(r.Pod.UID, plugin, r.PV.Name)
	}
	return s.holdDisk(ctx, *r)
}

func (s *Set) holdDisk(ctx context.Context, r Request) error {
	d, may := s.deps.Disks.(Attacher)
	if !may {
		return podstate.VolumeUnsupported.Wrap(errors.New("this node has no disks of iSCSI targets and Fibre Channel fabrics"))
	}
	return d.Attach(ctx, r)
}
