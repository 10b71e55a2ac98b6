package peer

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
)

// Capability is how a volume is to be used.
type Capability struct {
	Mode v1.PersistentVolumeAccessMode
	// Precise: the driver tells one pod of the node from several.
	Precise bool
	// Block: as a device. The rest is of filesystems only.
	Block   bool
	FSType  string
	Options []string
	// Group is nil when it is not the driver's to give the files to it.
	Group *int64
}

// message is the capability as CSI says it.
func (c Capability) message() *csi.VolumeCapability {
	access := &csi.VolumeCapability_AccessMode{Mode: accessMode(c.Mode, c.Precise)}
	if c.Block {
		return &csi.VolumeCapability{AccessMode: access, AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
	}
	filesystem := &csi.VolumeCapability_MountVolume{FsType: c.FSType, MountFlags: c.Options}
	if c.Group != nil {
		filesystem.VolumeMountGroup = fmt.Sprint(*c.Group)
	}
	return &csi.VolumeCapability{
		AccessMode: access,
		AccessType: &csi.VolumeCapability_Mount{Mount: filesystem},
	}
}

// accessMode is CSI's word for Kubernetes'. precise: the driver tells one pod of the node
// from several.
// Source: https://kubernetes-csi.github.io/docs/single-node-multi-writer.html
func accessMode(mode v1.PersistentVolumeAccessMode, precise bool) csi.VolumeCapability_AccessMode_Mode {
	switch {
	case mode == v1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == v1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOnce && precise:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOncePod && precise:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == v1.ReadWriteOnce, mode == v1.ReadWriteOncePod:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
	return csi.VolumeCapability_AccessMode_UNKNOWN
}
