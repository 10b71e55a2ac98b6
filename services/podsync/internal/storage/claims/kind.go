package claims

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The kinds of volumes that a claim may be bound to here.
const (
	HostPath = "hostPath"
	Local    = "local"
	CSI      = "csi"
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

// CheckKind refuses volumes of kinds that this node cannot set up.
func CheckKind(pv *v1.PersistentVolume) error {
	switch kind := Kind(pv); kind {
	case HostPath, Local, CSI:
	case "flexVolume":
		return fmt.Errorf("PersistentVolume %s is of the kind flexVolume, which this node does not run; use a CSI driver", pv.Name)
	default:
		return fmt.Errorf("PersistentVolume %s is of the kind %s, which this node does not support yet; use csi, hostPath or local", pv.Name, kind)
	}
	if mode := pv.Spec.VolumeMode; mode != nil && *mode == v1.PersistentVolumeBlock {
		return fmt.Errorf("PersistentVolume %s has volumeMode Block, which this node does not support yet for volumes of the kind %s", pv.Name, Kind(pv))
	}
	return nil
}
