package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetInfo implements CSI.
func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId: d.node, MaxVolumesPerNode: d.most, AccessibleTopology: &csi.Topology{Segments: map[string]string{where: d.node}},
	}, nil
}

// NodeGetCapabilities implements CSI.
func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, can := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: can}},
		})
	}
	return answer, nil
}

// NodeStageVolume implements CSI: a device gets its loop device, a directory nothing.
func (d *driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	err := d.change(r.GetVolumeId(), r.GetStagingTargetPath(), func(one volume) (volume, error) {
		if one.Staged != "" && one.Staged != r.GetStagingTargetPath() {
			return one, status.Errorf(codes.FailedPrecondition, "volume %s is staged at %s", r.GetVolumeId(), one.Staged)
		}
		if one.Block != (r.GetVolumeCapability().GetBlock() != nil) {
			return one, status.Errorf(codes.InvalidArgument, "volume %s is of the other kind", r.GetVolumeId())
		}
		if info, err := os.Stat(r.GetStagingTargetPath()); err != nil || !info.IsDir() {
			return one, status.Errorf(codes.FailedPrecondition, "%s is no directory", r.GetStagingTargetPath())
		}
		if one.Block && one.Device == "" {
			var err error
			if one.Device, err = d.host.attach(d.volumes.content(r.GetVolumeId())); err != nil {
				return one, err
			}
		}
		one.Staged = r.GetStagingTargetPath()
		return one, nil
	})
	return &csi.NodeStageVolumeResponse{}, err
}

// NodeUnstageVolume implements CSI.
func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	err := d.change(r.GetVolumeId(), r.GetStagingTargetPath(), func(one volume) (volume, error) {
		if len(one.Published) > 0 {
			return one, status.Errorf(codes.FailedPrecondition, "volume %s is still published at %s", r.GetVolumeId(), one.used())
		}
		if one.Device != "" {
			if err := d.host.detach(one.Device); err != nil {
				return one, err
			}
		}
		one.Staged, one.Device = "", ""
		return one, nil
	})
	return &csi.NodeUnstageVolumeResponse{}, err
}

// NodePublishVolume implements CSI.
func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" {
		if err := d.makeEphemeral(r.GetVolumeId()); err != nil {
			return nil, err
		}
	}
	err := d.change(r.GetVolumeId(), r.GetTargetPath(), func(one volume) (volume, error) {
		if err := publishable(one, r); err != nil {
			return one, err
		}
		from := d.volumes.content(r.GetVolumeId())
		if one.Block {
			from = one.Device
		}
		flags, err := mountFlags(r)
		if err != nil {
			return one, err
		}
		if err := place(r.GetTargetPath(), one.Block); err != nil {
			return one, err
		}
		return one.at(r.GetTargetPath(), true), d.host.bind(from, r.GetTargetPath(), flags)
	})
	return &csi.NodePublishVolumeResponse{}, err
}

// options are the mount options that a bind mount can have of its own.
var options = map[string]uintptr{
	"ro": unix.MS_RDONLY, "noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME,
	"noexec": unix.MS_NOEXEC, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV,
}

func mountFlags(r *csi.NodePublishVolumeRequest) (uintptr, error) {
	var flags uintptr
	if r.GetReadonly() {
		flags = unix.MS_RDONLY
	}
	for _, option := range r.GetVolumeCapability().GetMount().GetMountFlags() {
		flag, known := options[option]
		if !known {
			return 0, status.Errorf(codes.InvalidArgument, "volume %s cannot be mounted with %q", r.GetVolumeId(), option)
		}
		flags |= flag
	}
	return flags, nil
}

func (d *driver) makeEphemeral(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.volumes.get(id)
	if status.Code(err) == codes.NotFound {
		return d.volumes.make(id, "", volume{Bytes: least, Ephemeral: true})
	}
	return err
}

// publishable says why a volume cannot be published.
func publishable(one volume, r *csi.NodePublishVolumeRequest) error {
	mode := r.GetVolumeCapability().GetAccessMode().GetMode()
	others := one.at(r.GetTargetPath(), false).Published
	switch {
	case one.Block != (r.GetVolumeCapability().GetBlock() != nil):
		return status.Errorf(codes.InvalidArgument, "volume %s is of the other kind", r.GetVolumeId())
	case !one.Ephemeral && (one.Staged == "" || one.Staged != r.GetStagingTargetPath()):
		return status.Errorf(codes.FailedPrecondition, "volume %s is staged at %q, and not at %q", r.GetVolumeId(), one.Staged, r.GetStagingTargetPath())
	case mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER && len(others) > 0:
		return status.Errorf(codes.FailedPrecondition, "volume %s is for one, and published at %s", r.GetVolumeId(), others[0])
	}
	return nil
}

// place makes what a volume is mounted on. Its parent is the caller's to make.
func place(target string, block bool) error {
	var err error
	if block {
		var file *os.File
		if file, err = os.OpenFile(target, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			err = file.Close()
		}
	} else {
		err = os.Mkdir(target, 0o750)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// NodeUnpublishVolume implements CSI.
func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	var ephemeral bool
	err := d.change(r.GetVolumeId(), r.GetTargetPath(), func(one volume) (volume, error) {
		if err := d.host.unmount(r.GetTargetPath()); err != nil {
			return one, err
		}
		if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return one, err
		}
		ephemeral = one.Ephemeral
		return one.at(r.GetTargetPath(), false), nil
	})
	if err == nil && ephemeral {
		d.mu.Lock()
		defer d.mu.Unlock()
		err = d.volumes.remove(r.GetVolumeId())
	}
	return &csi.NodeUnpublishVolumeResponse{}, err
}

// NodeExpandVolume implements CSI.
func (d *driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	answer := &csi.NodeExpandVolumeResponse{}
	err := d.change(r.GetVolumeId(), r.GetVolumePath(), func(one volume) (volume, error) {
		if _, err := os.Stat(r.GetVolumePath()); err != nil {
			return one, status.Errorf(codes.NotFound, "volume %s is not at %s: %v", r.GetVolumeId(), r.GetVolumePath(), err)
		}
		if want := r.GetCapacityRange().GetRequiredBytes(); want > one.Bytes {
			return one, status.Errorf(codes.OutOfRange, "volume %s has %d bytes, not %d", r.GetVolumeId(), one.Bytes, want)
		}
		answer.CapacityBytes = one.Bytes
		if one.Device != "" {
			return one, d.host.resize(one.Device)
		}
		return one, nil
	})
	return answer, err
}

// NodeGetVolumeStats implements CSI.
func (d *driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	d.mu.Lock()
	one, err := d.volumes.get(r.GetVolumeId())
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &fs); err != nil {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s: %v", r.GetVolumeId(), r.GetVolumePath(), err)
	}
	if one.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: one.Bytes}}}, nil
	}
	block, inodes := int64(fs.Bsize), int64(fs.Files) //nolint:gosec // No disk has that many.
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(fs.Blocks) * block, Available: int64(fs.Bavail) * block, Used: int64(fs.Blocks-fs.Bfree) * block}, //nolint:gosec // As above.
		{Unit: csi.VolumeUsage_INODES, Total: inodes, Available: int64(fs.Ffree), Used: inodes - int64(fs.Ffree)},                                    //nolint:gosec // As above.
	}}, nil
}

// change does something with a volume at a path and writes down what became of it.
func (d *driver) change(id, path string, do func(volume) (volume, error)) error {
	if path == "" {
		return status.Error(codes.InvalidArgument, "a path is missing")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	one, err := d.volumes.get(id)
	if err != nil {
		return err
	}
	next, err := do(one)
	if err == nil {
		err = d.volumes.put(id, next)
	}
	if _, said := status.FromError(err); !said {
		return status.Error(codes.Internal, err.Error())
	}
	return err
}
