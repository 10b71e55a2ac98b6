package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// CreateSnapshot implements CSI: the snapshot's id is its name.
func (d *driver) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	made, err := d.snapshot(r.GetName(), r.GetSourceVolumeId(), "")
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: made}, nil
}

// snapshot makes a snapshot of a volume, when it is not there. It needs the lock.
func (d *driver) snapshot(id, of, group string) (*csi.Snapshot, error) {
	have, err := d.snapshots.get(id)
	switch {
	case err == nil && (have.Source != of || have.Group != group):
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is there, and of %s", id, have.Source)
	case status.Code(err) == codes.NotFound:
		source, err := d.volumes.get(of)
		if err != nil {
			return nil, err
		}
		have = volume{Bytes: source.Bytes, Block: source.Block, Source: of, Group: group, Made: time.Now()}
		if err := d.snapshots.make(id, d.volumes.content(of), have); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	case err != nil:
		return nil, err
	}
	return told(id, have), nil
}

// told is a snapshot as CSI has it.
func told(id string, one volume) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: id, SourceVolumeId: one.Source, SizeBytes: one.Bytes, GroupSnapshotId: one.Group,
		CreationTime: timestamppb.New(one.Made), ReadyToUse: true,
	}
}

// DeleteSnapshot implements CSI. One of a group goes with its group only.
func (d *driver) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.snapshots.get(r.GetSnapshotId())
	switch {
	case status.Code(err) == codes.NotFound:
		return &csi.DeleteSnapshotResponse{}, nil
	case err != nil:
		return nil, err
	case have.Group != "":
		return nil, status.Errorf(codes.InvalidArgument, "snapshot %s belongs to the group %s", r.GetSnapshotId(), have.Group)
	}
	return &csi.DeleteSnapshotResponse{}, d.snapshots.remove(r.GetSnapshotId())
}

// ListSnapshots implements CSI.
func (d *driver) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.find(func(one *csi.Snapshot) bool {
		return (r.GetSnapshotId() == "" || one.GetSnapshotId() == r.GetSnapshotId()) &&
			(r.GetSourceVolumeId() == "" || one.GetSourceVolumeId() == r.GetSourceVolumeId())
	})
	if err != nil {
		return nil, err
	}
	first, last := 0, len(all)
	if token := r.GetStartingToken(); token != "" {
		if first, err = strconv.Atoi(token); err != nil || first < 0 || first > last {
			return nil, status.Errorf(codes.Aborted, "%q is no token of this driver", token)
		}
	}
	answer := &csi.ListSnapshotsResponse{}
	if most := int(r.GetMaxEntries()); most > 0 && first+most < last {
		last = first + most
		answer.NextToken = strconv.Itoa(last)
	}
	for _, one := range all[first:last] {
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: one})
	}
	return answer, nil
}

// find finds snapshots, in the order of their ids. It needs the lock.
func (d *driver) find(wanted func(*csi.Snapshot) bool) ([]*csi.Snapshot, error) {
	ids, err := d.snapshots.all()
	if err != nil {
		return nil, err
	}
	var all []*csi.Snapshot
	for _, id := range ids {
		have, err := d.snapshots.get(id)
		if err != nil {
			return nil, err
		}
		if one := told(id, have); wanted(one) {
			all = append(all, one)
		}
	}
	return all, nil
}

// GroupControllerGetCapabilities implements CSI.
func (d *driver) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// CreateVolumeGroupSnapshot implements CSI: the group's id is its name. All of its volumes
// are copied under one lock of the driver's; what pods write meanwhile is not held back.
func (d *driver) CreateVolumeGroupSnapshot(_ context.Context, r *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if r.GetName() == "" || len(r.GetSourceVolumeIds()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "a group snapshot has a name and volumes")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.members(r.GetName())
	if err != nil {
		return nil, err
	}
	for _, one := range have {
		if !slices.Contains(r.GetSourceVolumeIds(), one.GetSourceVolumeId()) {
			return nil, status.Errorf(codes.AlreadyExists, "group snapshot %s is there, and has volume %s", r.GetName(), one.GetSourceVolumeId())
		}
	}
	for _, of := range r.GetSourceVolumeIds() {
		if _, err := d.snapshot(r.GetName()+"-"+of, of, r.GetName()); err != nil {
			return nil, err
		}
	}
	group, err := d.group(r.GetName())
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: group}, err
}

// members are the snapshots of a group; none say that there is no such group.
func (d *driver) members(group string) ([]*csi.Snapshot, error) {
	return d.find(func(one *csi.Snapshot) bool { return one.GetGroupSnapshotId() == group })
}

func (d *driver) group(id string) (*csi.VolumeGroupSnapshot, error) {
	all, err := d.members(id)
	if err != nil {
		return nil, err
	}
	if id == "" || len(all) == 0 {
		return nil, status.Errorf(codes.NotFound, "there is no group snapshot %q", id)
	}
	return &csi.VolumeGroupSnapshot{GroupSnapshotId: id, Snapshots: all, CreationTime: all[0].GetCreationTime(), ReadyToUse: true}, nil
}

// GetVolumeGroupSnapshot implements CSI.
func (d *driver) GetVolumeGroupSnapshot(_ context.Context, r *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	group, err := d.group(r.GetGroupSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: group}, nil
}

// DeleteVolumeGroupSnapshot implements CSI.
func (d *driver) DeleteVolumeGroupSnapshot(_ context.Context, r *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if r.GetGroupSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the group snapshot's id is missing")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.members(r.GetGroupSnapshotId())
	for _, one := range all {
		err = errors.Join(err, d.snapshots.remove(one.GetSnapshotId()))
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, err
}
