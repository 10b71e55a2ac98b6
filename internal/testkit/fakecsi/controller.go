package fakecsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// attachedAs is what the controller says of a volume that it has attached, and holds the
// caller of NodeStageVolume to.
var attachedAs = map[string]string{"lun": "7"}

// controller is a driver's controller service. A volume is a file in a directory, named by
// its id, which holds its bytes and, while it is attached, the node's name.
type controller struct {
	csi.UnimplementedControllerServer
	*Driver
	dir string
}

// Probe implements CSI.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// GetPluginCapabilities implements CSI.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	answer := &csi.GetPluginCapabilitiesResponse{}
	if d.cfg.Volumes == "" {
		return answer, nil
	}
	answer.Capabilities = []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}
	return answer, nil
}

// ControllerGetCapabilities implements CSI.
func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, can := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: can}},
		})
	}
	return answer, nil
}

// made is what the controller keeps of a volume.
type made struct {
	bytes int64
	node  string // empty: it is attached nowhere
}

// get reads a volume's file.
func (c *controller) get(id string) (made, error) {
	raw, err := os.ReadFile(filepath.Join(c.dir, id))
	if errors.Is(err, os.ErrNotExist) {
		return made{}, status.Errorf(codes.NotFound, "there is no volume %s", id)
	}
	if err != nil {
		return made{}, err
	}
	size, node, _ := strings.Cut(string(raw), " ")
	bytes, err := strconv.ParseInt(size, 10, 64)
	return made{bytes: bytes, node: node}, err
}

// put writes a volume's file, whole or not at all.
func (c *controller) put(id string, m made) error {
	fresh := filepath.Join(c.dir, "."+id)
	if err := os.WriteFile(fresh, fmt.Appendf(nil, "%d %s", m.bytes, m.node), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(c.dir, id))
}

// change is an operation that changes what is kept of a volume that is there.
func (c *controller) change(ctx context.Context, call, id string, how func(*made) error) (m made, err error) {
	err = c.operate(ctx, call, id, c.dir, func() error {
		var err error
		if m, err = c.get(id); err != nil {
			return err
		}
		if err := how(&m); err != nil {
			return err
		}
		return c.put(id, m)
	})
	return m, err
}

// CreateVolume implements CSI: the volume's id is its name.
func (c *controller) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	m := made{bytes: r.GetCapacityRange().GetRequiredBytes()}
	err := c.operate(ctx, "CreateVolume", r.GetName(), c.dir, func() error {
		have, err := c.get(r.GetName())
		switch {
		case status.Code(err) == codes.NotFound:
			return c.put(r.GetName(), m)
		case err == nil && have.bytes < m.bytes:
			return status.Error(codes.AlreadyExists, "a smaller one is there")
		}
		m = have
		return err
	})
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.GetName(), CapacityBytes: m.bytes}}, err
}

// DeleteVolume implements CSI.
func (c *controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	err := c.operate(ctx, "DeleteVolume", r.GetVolumeId(), c.dir, func() error {
		have, err := c.get(r.GetVolumeId())
		switch {
		case status.Code(err) == codes.NotFound:
			return nil
		case err == nil && have.node != "":
			return status.Errorf(codes.FailedPrecondition, "it is attached to %s", have.node)
		case err != nil:
			return err
		}
		return os.Remove(filepath.Join(c.dir, r.GetVolumeId()))
	})
	return &csi.DeleteVolumeResponse{}, err
}

// ControllerPublishVolume implements CSI.
func (c *controller) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	_, err := c.change(ctx, "ControllerPublishVolume", r.GetVolumeId(), func(m *made) error {
		if r.GetNodeId() != c.cfg.NodeID {
			return status.Errorf(codes.NotFound, "there is no node %s", r.GetNodeId())
		}
		m.node = r.GetNodeId()
		return nil
	})
	return &csi.ControllerPublishVolumeResponse{PublishContext: attachedAs}, err
}

// ControllerUnpublishVolume implements CSI.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	_, err := c.change(ctx, "ControllerUnpublishVolume", r.GetVolumeId(), func(m *made) error {
		m.node = ""
		return nil
	})
	return &csi.ControllerUnpublishVolumeResponse{}, err
}

// ControllerExpandVolume implements CSI: the rest is the node's to do.
func (c *controller) ControllerExpandVolume(ctx context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	m, err := c.change(ctx, "ControllerExpandVolume", r.GetVolumeId(), func(m *made) error {
		m.bytes = max(m.bytes, r.GetCapacityRange().GetRequiredBytes())
		return nil
	})
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: m.bytes, NodeExpansionRequired: true}, err
}

// attached says whether a volume that the controller has made is attached to the node, as
// whoever stages it says.
func (d *Driver) attached(r *csi.NodeStageVolumeRequest) error {
	if d.cfg.Volumes == "" {
		return nil
	}
	m, err := (&controller{Driver: d, dir: d.cfg.Volumes}).get(r.GetVolumeId())
	if err != nil {
		return err
	}
	if m.node != d.cfg.NodeID || r.GetPublishContext()["lun"] != attachedAs["lun"] {
		return status.Errorf(codes.FailedPrecondition, "it is attached to %q, and said to be as %v", m.node, r.GetPublishContext())
	}
	return nil
}
