package main

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// least and most are what a volume can have, in bytes.
	least = 1 << 20
	most  = 1 << 40
	// where is the topology's key.
	where = "topology.hostpath.csi/node"
)

// driver is the driver's four services.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer
	csi.UnimplementedNodeServer
	name, node string
	most       int64
	modifies   bool
	mutable    []string
	host       host

	mu                 sync.Mutex
	volumes, snapshots volumes
}

// GetPluginInfo implements CSI.
func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "stand-in"}, nil
}

// GetPluginCapabilities implements CSI.
func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	answer := &csi.GetPluginCapabilitiesResponse{}
	for _, can := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
		csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: can}},
		})
	}
	return answer, nil
}

// Probe implements CSI.
func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// ControllerGetCapabilities implements CSI.
func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	all := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	}
	if d.modifies {
		all = append(all, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, can := range all {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: can}},
		})
	}
	return answer, nil
}

// CreateVolume implements CSI: the volume's id is its name.
func (d *driver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := d.accepts(r.GetMutableParameters()); err != nil {
		return nil, err
	}
	bytes, err := size(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	block := slices.ContainsFunc(r.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool { return c.GetBlock() != nil })
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.volumes.get(r.GetName())
	switch {
	case err == nil && (have.Block != block || have.Bytes < bytes):
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is there, and another", r.GetName())
	case status.Code(err) == codes.NotFound:
		have = volume{Bytes: bytes, Block: block}
		from, err := d.source(r, have)
		if err != nil {
			return nil, err
		}
		if err := d.volumes.make(r.GetName(), from, have); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	case err != nil:
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: r.GetName(), CapacityBytes: have.Bytes, VolumeContext: maps.Clone(r.GetParameters()), ContentSource: r.GetVolumeContentSource(),
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{where: d.node}}},
	}}, nil
}

// source is where the data is that a new volume begins with; empty for none.
func (d *driver) source(r *csi.CreateVolumeRequest, wanted volume) (string, error) {
	if r.GetVolumeContentSource() == nil {
		return "", nil
	}
	of, from := d.volumes, r.GetVolumeContentSource().GetVolume().GetVolumeId()
	if snapshot := r.GetVolumeContentSource().GetSnapshot(); snapshot != nil {
		of, from = d.snapshots, snapshot.GetSnapshotId()
	}
	source, err := of.get(from)
	if err != nil {
		return "", err
	}
	if source.Block != wanted.Block || source.Bytes > wanted.Bytes {
		return "", status.Errorf(codes.InvalidArgument, "volume %s has no room for what is in %s, or is of another kind", r.GetName(), from)
	}
	return of.content(from), nil
}

// size is how large a volume is made.
func size(want *csi.CapacityRange) (int64, error) {
	bytes := max(want.GetRequiredBytes(), least)
	if limit := want.GetLimitBytes(); bytes > most || limit > 0 && bytes > limit {
		return 0, status.Errorf(codes.OutOfRange, "no volume has %v", want)
	}
	return bytes, nil
}

// GetCapacity implements CSI: a volume takes no room before it is written to.
func (d *driver) GetCapacity(context.Context, *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return &csi.GetCapacityResponse{AvailableCapacity: most, MaximumVolumeSize: wrapperspb.Int64(most), MinimumVolumeSize: wrapperspb.Int64(least)}, nil
}

// DeleteVolume implements CSI.
func (d *driver) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.volumes.get(r.GetVolumeId())
	switch {
	case status.Code(err) == codes.NotFound:
		return &csi.DeleteVolumeResponse{}, nil
	case err != nil:
		return nil, err
	case have.used() != "":
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is still used at %s", r.GetVolumeId(), have.used())
	}
	return &csi.DeleteVolumeResponse{}, d.volumes.remove(r.GetVolumeId())
}

// ControllerExpandVolume implements CSI.
func (d *driver) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	bytes, err := size(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.volumes.get(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if have.Bytes < bytes {
		have.Bytes = bytes
		if have.Block {
			if err := os.Truncate(d.volumes.content(r.GetVolumeId()), bytes); err != nil {
				return nil, err
			}
		}
		if err := d.volumes.put(r.GetVolumeId(), have); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: have.Bytes, NodeExpansionRequired: true}, nil
}

// ControllerModifyVolume implements CSI: it takes what it is said to accept.
func (d *driver) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if err := d.accepts(r.GetMutableParameters()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.volumes.get(r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

func (d *driver) accepts(parameters map[string]string) error {
	for name := range parameters {
		if !d.modifies || !slices.Contains(d.mutable, name) {
			return status.Errorf(codes.InvalidArgument, "this driver does not change a volume's %s", name)
		}
	}
	return nil
}

// ValidateVolumeCapabilities implements CSI.
func (d *driver) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.volumes.get(r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(),
	}}, nil
}
