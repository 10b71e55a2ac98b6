package volume

import (
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// The directory names of the volume types, as every node agent has them.
const (
	pluginEmptyDir    = "kubernetes.io~empty-dir"
	pluginSecret      = "kubernetes.io~secret"
	pluginConfigMap   = "kubernetes.io~configmap"
	pluginDownwardAPI = "kubernetes.io~downward-api"
	pluginProjected   = "kubernetes.io~projected"
	pluginCSI         = "kubernetes.io~csi"
	pluginLocal       = "kubernetes.io~local-volume"
	pluginNFS         = "kubernetes.io~nfs"
	pluginISCSI       = "kubernetes.io~iscsi"
	pluginFC          = "kubernetes.io~fc"
	// These two have none on the disk.
	pluginHostPath = "kubernetes.io~host-path"
	pluginImage    = "kubernetes.io~image"
)

const (
	volumesDir  = "volumes"
	devicesDir  = "volumeDevices"
	subPathsDir = "volume-subpaths"
	pluginsDir  = "plugins"
)

// plugin is the directory name of a volume's type; empty for types that no driver
// makes.
func plugin(v *v1.Volume) string {
	switch {
	case v.EmptyDir != nil:
		return pluginEmptyDir
	case v.Secret != nil:
		return pluginSecret
	case v.ConfigMap != nil:
		return pluginConfigMap
	case v.DownwardAPI != nil:
		return pluginDownwardAPI
	case v.Projected != nil:
		return pluginProjected
	case v.CSI != nil:
		return pluginCSI
	case v.NFS != nil:
		return pluginNFS
	case v.ISCSI != nil:
		return pluginISCSI
	case v.FC != nil:
		return pluginFC
	case v.HostPath != nil:
		return pluginHostPath
	case v.Image != nil:
		return pluginImage
	}
	return ""
}

// component refuses what cannot be one directory's name.
func component(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return podstate.VolumeSpec.Wrap(fmt.Errorf("%s %q cannot be a directory's name", what, name))
	}
	return nil
}

// PodDir is the directory of a pod below a node agent's root.
func PodDir(rootDir string, uid types.UID) string {
	return filepath.Join(rootDir, "pods", string(uid))
}

func (s *Set) podDir(uid types.UID) string { return PodDir(s.cfg.RootDir, uid) }

func (s *Set) volumeDir(uid types.UID, plugin, name string) string {
	return filepath.Join(s.podDir(uid), volumesDir, plugin, name)
}

// deviceLink is where a pod has the link to a device.
func (s *Set) deviceLink(uid types.UID, plugin, name string) string {
	return filepath.Join(s.podDir(uid), devicesDir, plugin, name)
}

// readyFile marks an emptyDir that is complete.
func (s *Set) readyFile(uid types.UID, name string) string {
	return filepath.Join(s.podDir(uid), pluginsDir, pluginEmptyDir, name, "ready")
}
