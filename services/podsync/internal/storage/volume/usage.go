package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// ErrNoUsage says that a driver does not say how full its volumes are.
var ErrNoUsage = errors.New("the driver does not say how full its volumes are")

// ErrNotDriven says that a pod has no such volume of which somebody keeps count.
var ErrNotDriven = errors.New("no such volume is set up of which a driver, a server or a quota keeps count")

// blockSource is what a kubelet calls the source of the size of a device without a driver.
const blockSource = "block"

// Usage is what a driver or a server says of a volume; what it does not say is zero.
type Usage struct {
	// Driver is the driver's name, the plugin's of a server's, or blockSource.
	Driver string
	// Available, Capacity and Used are bytes.
	Available, Capacity, Used uint64
	// InodesFree, Inodes and InodesUsed are numbers.
	InodesFree, Inodes, InodesUsed uint64
	// Condition is nil when the driver says nothing of it.
	Condition *Condition
}

// Condition is how well a volume is.
type Condition struct {
	Abnormal bool
	// Message is the driver's.
	Message string
}

// driven says whether a volume that is set up is measured by asking somebody: its driver,
// or its server, or, of a device without a driver, the kernel.
func (st *podState) driven(v *v1.Volume) bool {
	b := st.bound[v.Name]
	return v.CSI != nil || b.Kind == claims.CSI || b.Device || st.ofServer(v)
}

// ofServer says whether a volume is a directory of a server's.
func (st *podState) ofServer(v *v1.Volume) bool { return st.serverOf(v) != "" }

// serverOf is the plugin of a volume that is a directory of a server's; empty when it is none.
func (st *podState) serverOf(v *v1.Volume) (plugin string) {
	b := st.bound[v.Name]
	switch {
	case v.NFS != nil, b.Kind == claims.NFS:
		return pluginNFS
	case b.Served && !b.Device:
		return pluginLocal
	}
	return ""
}

// Usage asks the driver of a volume, or its server, how full it is; of a device that is how
// large it is, and perhaps no more, of an emptyDir what is in it by its quota. The error is
// ErrNotDriven or ErrNoUsage when nobody can be asked. A volume that is not well is told as
// an event of its pod.
func (s *Set) Usage(ctx context.Context, uid types.UID, name string) (Usage, error) {
	if usage, counted, err := s.counted(uid, name); counted {
		return usage, err
	}
	at, err := s.drivenAt(uid, name)
	if err != nil {
		return Usage{}, err
	}
	pod, dir := at.pod, filepath.Dir(at.path)
	switch {
	case at.server != "":
		return s.servedUsage(apart.For(ctx, pod.Namespace), at.server, at.path)
	case at.device && at.kind != claims.CSI:
		size, err := mount.SizeOfDevice(at.path)
		return Usage{Driver: blockSource, Capacity: size}, err
	case at.device:
		dir = at.path
	}
	meter, can := s.deps.CSI.(Meter)
	if !can {
		return Usage{}, ErrNoUsage
	}
	usage, err := meter.Usage(ctx, dir)
	if err != nil {
		return Usage{}, fmt.Errorf("volume %q of pod %s/%s: %w", name, pod.Namespace, pod.Name, err)
	}
	if !s.cfg.Health {
		usage.Condition = nil
	}
	if c := usage.Condition; c != nil && c.Abnormal && s.deps.Events != nil {
		s.deps.Events.Pod(pod, v1.EventTypeWarning, "VolumeConditionAbnormal", fmt.Sprintf("Volume %s: %s", name, c.Message))
	}
	return usage, nil
}

// servedUsage is how full a filesystem of a server is, as that says.
func (s *Set) servedUsage(ctx context.Context, plugin, path string) (Usage, error) {
	st, err := s.deps.Mounter.Statfs(ctx, path)
	if err != nil {
		return Usage{}, err
	}
	f := mount.FullnessOf(&st)
	return Usage{
		Driver: shownName(plugin), Available: f.Available, Capacity: f.Capacity, Used: f.Used,
		InodesFree: f.InodesFree, Inodes: f.Inodes, InodesUsed: f.Inodes - min(f.InodesFree, f.Inodes),
	}, nil
}

// driven is a volume that is measured by asking somebody.
type driven struct {
	pod *v1.Pod
	// path is where it lies; device: that is a link to it.
	path   string
	device bool
	// kind is the claim's, and server is serverOf.
	kind   string
	server string
}

// drivenAt finds such a volume.
func (s *Set) drivenAt(uid types.UID, name string) (driven, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil || st.pod == nil || st.paths[name] == "" {
		return driven{}, ErrNotDriven
	}
	v := podutil.Volume(st.pod, name)
	if v == nil || !st.driven(v) {
		return driven{}, ErrNotDriven
	}
	b := st.bound[name]
	return driven{pod: st.pod, path: st.paths[name], device: b.Device, kind: b.Kind, server: st.serverOf(v)}, nil
}
