// Package scsi makes the volumes that are disks of iSCSI targets and of Fibre Channel
// fabrics: it logs in to targets, finds disks, mounts their filesystems for all pods, and
// takes disks from the node when no pod has them.
//
// It owns <root>/plugins/kubernetes.io/iscsi and fc, which are as the kubelet has them,
// what beside them says which volumes those are (plugins/polylet~disks), and the mounts and
// devices of such volumes in the pods' directories. It must never take a disk away that
// somebody holds open, never log out of a target that others use, never end a session or
// change a record that was there before, never run a shell, never show a secret in an error
// or a log, and never believe what lies in a volume. What may wait for a disk that does not
// answer is done apart.
// Source: the kubelet's behaviour, https://kubernetes.io/docs/concepts/storage/volumes/ and
// https://github.com/open-iscsi/open-iscsi
package scsi

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/turn"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/host/kernel"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/ownership"
	"github.com/polylet/polylet/services/podsync/internal/storage/selinux"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// Objects are what secrets are read from.
type Objects interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// InUse has the cluster know which volumes the node uses.
type InUse interface {
	// Hold tells that a pod wants a volume, and waits until it may be used here, unless the
	// pod has it already: it stands. own: the pod's own spec has it.
	Hold(ctx context.Context, pod *v1.Pod, name v1.UniqueVolumeName, own, stands bool) error
	// SettleSoon has Settle called. It returns at once.
	SettleSoon(name v1.UniqueVolumeName)
}

// Apart has calls done by processes of their own; *apart.Processes has it.
type Apart interface {
	ownership.Apart
	Do(ctx context.Context, whose, call string, args ...string) (string, error)
}

// Config of Volumes.
type Config struct {
	// RootDir is the node agent's root, e.g. /var/lib/kubelet.
	RootDir string
	// Sys and Dev are where the kernel shows devices; empty is /sys and /dev.
	Sys, Dev string
	// SELinuxMount is the gate: volumes of claims are mounted with SELinux labels whatever
	// their access modes.
	SELinuxMount bool
	// Boot is the machine's present start, by its ID; empty asks the kernel.
	Boot string
}

// Deps are what Volumes need.
type Deps struct {
	Objects Objects
	InUse   InUse
	Mounter mount.Mounter
	// Apart does Calls and ownership.Calls; nil: they are done here.
	Apart Apart
	// SELinux is the node's policy; nil is none.
	SELinux selinux.Policy
	// Events and Metrics may be nil.
	Events  ownership.Events
	Metrics *metrics.Metrics
	// Run runs a program of the host's and returns what it says; nil is the real thing.
	Run func(ctx context.Context, program string, args ...string) (string, error)
	// Same says whether one filesystem is mounted at two places; nil asks the kernel.
	Same func(a, b string) bool
	// Shown says where a device, by its name, is mounted, or shown beside its own place; nil
	// asks the kernel.
	Shown func(name string) ([]string, error)
	// Context is the SELinux label that a filesystem is mounted with, by its path; nil asks
	// the kernel.
	Context func(path string) (string, error)
}

// Volumes are those of both kinds: a volume.Driver, Attacher and Mapper. Safe for
// concurrent use.
type Volumes struct {
	cfg  Config
	deps Deps

	places turn.Turns // by where a disk is for all pods
	disks  turn.Turns // by the target, or by the disk of a fabric

	mu sync.Mutex
	// labels are with which SELinux labels pods have disks, by where those are for all pods.
	labels map[string]selinux.Labels
}

// New makes Volumes; it starts nothing.
func New(cfg Config, deps Deps) *Volumes {
	if cfg.Sys == "" {
		cfg.Sys = "/sys"
	}
	if cfg.Dev == "" {
		cfg.Dev = "/dev"
	}
	cfg.Boot = cmp.Or(cfg.Boot, kernel.BootID(), "one that has no ID")
	if deps.Run == nil {
		deps.Run = run
	}
	if deps.Same == nil {
		deps.Same = func(a, b string) bool { return mount.Filesystem(a) == mount.Filesystem(b) }
	}
	if deps.Shown == nil {
		deps.Shown = func(name string) ([]string, error) { return shown(cfg.Dev, name) }
	}
	if deps.Context == nil {
		deps.Context = mount.Context
	}
	return &Volumes{cfg: cfg, deps: deps, labels: map[string]selinux.Labels{}}
}

// Calls are what Volumes have processes of their own do.
func Calls() map[string]apart.Call {
	return map[string]apart.Call{callScan: scanCall, callRelease: releaseCall, callHeld: heldCall}
}

const (
	// answersWithin is how long a call may wait for a disk, or for the kernel's look at a bus.
	answersWithin = time.Minute
	// deviceWithin is how long a disk that the kernel was told to look for has to appear.
	deviceWithin = 30 * time.Second
	// multipathWithin is how long several paths have to become one device.
	multipathWithin = 10 * time.Second
)

// do has a call done; whose names who may not answer.
func (v *Volumes) do(ctx context.Context, whose, call string, args ...string) (string, error) {
	if v.deps.Apart == nil {
		return Calls()[call](args)
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	return v.deps.Apart.Do(ctx, whose, call, args...)
}

// Attach implements volume.Attacher. The controller of the control plane attaches such a
// volume in name only: it sees to it that one which only one node may write is not given to
// two.
func (v *Volumes) Attach(ctx context.Context, r volume.Request) error {
	w, err := wantedBy(r)
	if err != nil {
		return err
	}
	if err := v.deps.InUse.Hold(ctx, r.Pod, w.disk.unique(), w.inline, v.stands(w)); err != nil {
		return &podstate.VolumeStep{Step: podstate.WaitForAttach, Err: err}
	}
	return nil
}

// stands says whether a pod has a volume already.
func (v *Volumes) stands(w *wanted) bool {
	if w.block {
		_, err := os.Stat(w.dir)
		return err == nil
	}
	mounted, err := v.deps.Mounter.Mounted(w.dir)
	return err == nil && mounted
}
