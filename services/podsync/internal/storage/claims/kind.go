package claims

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// The kinds of volumes that a claim may be bound to here.
const (
	HostPath = "hostPath"
	Local    = "local"
	CSI      = "csi"
	NFS      = "nfs"
	ISCSI    = "iscsi"
	FC       = "fc"
)

// Kind is the field of a volume's source that is set, as in its spec: hostPath, csi …
func Kind(pv *v1.PersistentVolume) string {
	source := reflect.ValueOf(pv.Spec.PersistentVolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "unknown"
}

// IsDevice says whether pods use a volume as a device.
func IsDevice(pv *v1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// IsDisk says whether a volume is a disk of an iSCSI target or of a Fibre Channel fabric.
func IsDisk(pv *v1.PersistentVolume) bool { return pv.Spec.ISCSI != nil || pv.Spec.FC != nil }

// CheckKind refuses volumes of kinds that this node cannot set up.
func CheckKind(pv *v1.PersistentVolume) error {
	switch kind := Kind(pv); kind {
	case HostPath, Local, CSI, NFS, ISCSI, FC:
	case "flexVolume":
		return podstate.VolumeUnsupported.Wrap(fmt.Errorf("PersistentVolume %s is of the kind flexVolume, which this node does not run; use a CSI driver", pv.Name))
	default:
		return podstate.VolumeUnsupported.Wrap(fmt.Errorf("PersistentVolume %s is of the kind %s, which this node does not support; use csi, nfs, iscsi, fc, hostPath or local", pv.Name, kind))
	}
	if IsDevice(pv) && !IsDisk(pv) && pv.Spec.CSI == nil && pv.Spec.Local == nil {
		return podstate.VolumeNoDevice.Wrap(fmt.Errorf("PersistentVolume %s has volumeMode Block, which volumes of the kind %s do not have", pv.Name, Kind(pv)))
	}
	return nil
}
