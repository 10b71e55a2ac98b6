package peer

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Info is whom a driver takes this node for.
type Info struct {
	NodeID string
	// MaxVolumes is how many of its volumes the node can have; zero when it does not say.
	MaxVolumes int64
	// Topology are the labels of where the node is, for the driver; nil for none.
	Topology map[string]string
}

// Info asks who the driver takes this node for.
func (d *Driver) Info(ctx context.Context) (Info, error) {
	answer, err := d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	return Info{
		NodeID: answer.GetNodeId(), MaxVolumes: answer.GetMaxVolumesPerNode(), Topology: answer.GetAccessibleTopology().GetSegments(),
	}, err
}

// Abilities are what a driver can do on a node, by the CSI spec's names.
type Abilities struct {
	StageUnstage, MountGroup, Expand, Stats, Condition, SingleNodeMultiWriter bool
}

// Abilities asks what the driver can do.
func (d *Driver) Abilities(ctx context.Context) (Abilities, error) {
	answer, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	can := map[csi.NodeServiceCapability_RPC_Type]bool{}
	for _, one := range answer.GetCapabilities() {
		can[one.GetRpc().GetType()] = true
	}
	return Abilities{
		StageUnstage: can[csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME],
		MountGroup:   can[csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP],
		Expand:       can[csi.NodeServiceCapability_RPC_EXPAND_VOLUME],
		Stats:        can[csi.NodeServiceCapability_RPC_GET_VOLUME_STATS],
		Condition:    can[canSayCondition],

		SingleNodeMultiWriter: can[csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
	}, err
}

// Staging is how a volume is staged.
type Staging struct {
	Handle, Target string
	As             Capability
	// Attachment is what its attachment says, and Context what is to be known of it.
	Attachment, Context, Secret map[string]string
}

// Stage has a volume staged.
func (d *Driver) Stage(ctx context.Context, s Staging) error {
	_, err := d.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: s.Handle, PublishContext: s.Attachment, StagingTargetPath: s.Target, Secrets: s.Secret,
		VolumeCapability: s.As.message(), VolumeContext: s.Context,
	})
	return err
}

// Unstage ends what Stage began.
func (d *Driver) Unstage(ctx context.Context, handle, target string) error {
	_, err := d.node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: target})
	return err
}

// Publication is how a volume is published.
type Publication struct {
	Handle, Target string
	// Staging is where it is staged; empty for a driver that does not stage.
	Staging  string
	ReadOnly bool
	As       Capability
	// Attachment is what its attachment says, and Context what is to be known of it.
	Attachment, Context, Secret map[string]string
}

// Publish has a volume published.
func (d *Driver) Publish(ctx context.Context, p Publication) error {
	_, err := d.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: p.Handle, TargetPath: p.Target, StagingTargetPath: p.Staging, Readonly: p.ReadOnly,
		PublishContext: p.Attachment, VolumeContext: p.Context, Secrets: p.Secret, VolumeCapability: p.As.message(),
	})
	return err
}

// Unpublish ends what Publish began.
func (d *Driver) Unpublish(ctx context.Context, handle, target string) error {
	_, err := d.node.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target})
	return err
}

// Expansion is how a volume is grown.
type Expansion struct {
	// Path is where it is published, and Staging where it is staged; that is empty for a
	// driver that does not stage.
	Handle, Path, Staging string
	// Bytes it is to have.
	Bytes  int64
	As     Capability
	Secret map[string]string
}

// Expand has a volume grown.
func (d *Driver) Expand(ctx context.Context, e Expansion) error {
	_, err := d.node.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: e.Handle, VolumePath: e.Path, StagingTargetPath: e.Staging, Secrets: e.Secret,
		CapacityRange: &csi.CapacityRange{RequiredBytes: e.Bytes}, VolumeCapability: e.As.message(),
	})
	return err
}
