package volume

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Driver makes the volumes of one plugin and takes them down. Of one pod many calls may
// run at once, but for one volume one after the other. Each ends with its ctx; one that
// waits for somebody holds up its own pod only.
type Driver interface {
	// Setup makes a volume, or brings it up to date with its pod. Idempotent, also over
	// a crash at any point. Beside an error Made.Path says where stands what was set up
	// before.
	Setup(ctx context.Context, r Request) (Made, error)
	// Teardown ends and removes a volume, from what lies on the disk alone: nothing need
	// be known of its pod. Idempotent, also over a crash at any point.
	Teardown(ctx context.Context, v Remains) error
}

// Refresher is a Driver whose volumes show what changes beside their pods.
type Refresher interface {
	Driver
	// Refresh brings a volume up to date that Setup has made.
	Refresh(ctx context.Context, r Request) (Made, error)
}

// Attacher is a Driver of volumes that may have to be attached to the node first.
type Attacher interface {
	Driver
	// Attach waits until a volume of a claim is attached. It changes nothing that
	// Teardown would have to undo; Forget ends what it has begun.
	Attach(ctx context.Context, r Request) error
}

// Mapper is a Driver that also gives volumes of claims to pods as devices.
type Mapper interface {
	Driver
	// Unmap is Teardown for a device, of which Remains.Dir is the link to it.
	Unmap(ctx context.Context, v Remains) error
}

// Expander is a Driver whose volumes can grow while they are mounted.
type Expander interface {
	Driver
	// Expand has a volume of a claim grown that Setup has made. The error may be a
	// growth.Error.
	Expand(ctx context.Context, r Request, to resource.Quantity) error
}

// Meter is a Driver whose volumes it alone can measure.
type Meter interface {
	Driver
	// Usage says how full the volume is that lies in a directory as Setup was given it.
	// The error is ErrNoUsage when it cannot say that of any.
	Usage(ctx context.Context, dir string) (Usage, error)
}

// Namer is a Driver that stands for several, each with a name. Those that it does not
// know have none: there may be any number in specs.
type Namer interface {
	Driver
	// DriverOf is the one that has made the volume in a directory as Setup was given it, or
	// the device that a link there leads to; empty when it is not known.
	DriverOf(dir string) string
	// Knows says whether there is a driver of this name. It returns at once.
	Knows(driver string) bool
}

// Refuser is a Driver that knows why a pod cannot have a volume beside the one that has it.
type Refuser interface {
	Driver
	// Conflict says why a pod is to wait for a volume of a claim that another pod has; nil
	// when it is not for a reason of this Driver, or that is not known now. It waits for
	// nobody who works on the volume.
	Conflict(ctx context.Context, r Request) error
}

// Forgetter is a Driver that knows something of pods.
type Forgetter interface {
	Driver
	// Forget is called when a pod's volumes are gone, also when none was of this Driver.
	Forget(uid types.UID)
}

// Request says which volume of which pod.
type Request struct {
	Pod    *v1.Pod
	Volume *v1.Volume
	// Dir is the volume's place below the pod's directory, and of a device the link to
	// it; whether it exists is the Driver's.
	Dir string
	// PV is what the volume's claim is bound to, and ReadOnly what the pod says of the
	// claim; nil for a volume that is in the pod's own spec.
	PV       *v1.PersistentVolume
	ReadOnly bool
	// Migrated: it is of before CSI, and PV what a CSI driver makes of it.
	Migrated bool
	// Called is what people know PV by: the name of one that was made of a pod's own spec is
	// that of its directory.
	Called string

	mounts func() *mountIndex // the pod's
}

// Made is what a Driver made.
type Made struct {
	// Path is what containers mount; empty for what the runtime mounts.
	Path string
	// Refresh is when the content should be made again; zero for never.
	Refresh time.Time
	// Labelled: it is mounted with the SELinux label that its pod wants, and no file of it
	// need be given that.
	Labelled bool
	// device: it is one, and migrated: it is of before CSI; also beside an error.
	device, migrated bool
	// project is that by which the volume is counted; 0: it is not.
	project uint32
	// pv is what the volume's claim is bound to, as far as that was looked up; also beside an
	// error.
	pv     *v1.PersistentVolume
	called string // see Request
}

// Remains are what is on the disk of a volume.
type Remains struct {
	UID  types.UID
	Name string
	Dir  string
}

// own are the Drivers of the node's own volumes, by the names of their directories.
func (s *Set) own() map[string]Driver {
	files := contents{s}
	return map[string]Driver{
		pluginEmptyDir: emptyDirs{s}, pluginHostPath: hostPaths{s}, pluginImage: images{}, pluginLocal: claimed{s}, pluginNFS: nfsVolumes{s},
		pluginSecret: files, pluginConfigMap: files, pluginDownwardAPI: files, pluginProjected: files,
	}
}

// driver is that of a volume in a pod's spec.
func (s *Set) driver(v *v1.Volume) (Driver, error) {
	if ofClaim(v) {
		return claimed{s}, nil
	}
	if d := s.drivers[plugin(v)]; d != nil {
		return d, nil
	}
	return nil, podstate.VolumeUnsupported.Wrap(fmt.Errorf("volumes of type %s are not supported yet; use emptyDir, hostPath, configMap, secret, downwardAPI, projected, csi, nfs, iscsi, fc, or a claim that is bound to a hostPath, local, nfs, iscsi, fc or csi volume", typeName(v)))
}

// request is a volume of a pod for its driver.
func (s *Set) request(pod *v1.Pod, v *v1.Volume, mounts func() *mountIndex) Request {
	return Request{Pod: pod, Volume: v, Dir: s.volumeDir(pod.UID, plugin(v), v.Name), mounts: mounts}
}

// refreshes says whether a volume shows what changes beside its pod.
func (s *Set) refreshes(v *v1.Volume) bool {
	_, yes := s.drivers[plugin(v)].(Refresher)
	return yes
}

// foreign are the volumes of plugins that this node has no driver of, such as an agent
// before it has left behind.
type foreign struct{ plugin string }

// Setup is never asked for.
func (f foreign) Setup(context.Context, Request) (Made, error) {
	return Made{}, fmt.Errorf("no driver of %s", f.plugin)
}

// Teardown removes an empty directory, which is nobody's.
func (f foreign) Teardown(_ context.Context, v Remains) error {
	if err := rmdir(v.Dir); err != nil {
		return fmt.Errorf("volume %q is of plugin %s, which this node has no driver of; unmount what is at and below %s and remove it by hand: %w", v.Name, f.plugin, v.Dir, err)
	}
	return nil
}

// shownName is a plugin's name as people know it, of its directory.
func shownName(dir string) string { return strings.Replace(dir, "~", "/", 1) }
