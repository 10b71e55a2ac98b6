package volume

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// sourceOf says in few words where a volume comes from, for people.
func sourceOf(v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return "emptyDir"
	case v.HostPath != nil:
		return "hostPath " + v.HostPath.Path
	case v.ConfigMap != nil:
		return "configMap " + v.ConfigMap.Name
	case v.Secret != nil:
		return "secret " + v.Secret.SecretName
	case v.Projected != nil:
		return "projected"
	case v.DownwardAPI != nil:
		return "downwardAPI"
	case v.PersistentVolumeClaim != nil:
		return "persistentVolumeClaim " + v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return "ephemeral"
	case v.CSI != nil:
		return "csi " + v.CSI.Driver
	case v.NFS != nil:
		return fmt.Sprintf("nfs %s:%s", v.NFS.Server, v.NFS.Path)
	case v.ISCSI != nil:
		return fmt.Sprintf("iscsi %s %s lun %d", v.ISCSI.TargetPortal, v.ISCSI.IQN, v.ISCSI.Lun)
	case v.FC != nil:
		return fmt.Sprintf("fc %s", append(v.FC.TargetWWNs, v.FC.WWIDs...))
	case claims.InTree(v):
		return "in-tree volume of a CSI driver"
	default:
		return typeName(v)
	}
}
