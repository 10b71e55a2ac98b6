package podsync

import (
	"context"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

// Deps are what podsync is given.
type Deps struct {
	// Metrics is the process's main registry.
	Metrics prometheus.Registerer
	Health  health.Reporter
	Epoch   uint64
	// Runtime and Images are connections to the container runtime; see DialRuntime.
	Runtime, Images grpc.ClientConnInterface
	// Client is nil in standalone mode. Events is the client for events, which
	// have a rate limit of their own; nil is Client.
	Client, Events kubernetes.Interface

	// The rest stands in for the host where podsync runs on none, as in the
	// simulation; nil is the host's own.
	Mounter     Mounter
	Notifier    Notifier // of static pods' manifests
	LogNotifier Notifier // of containers' logs
	HostsGuard  HostsGuard
	HostIPs     func() []string
	FreePercent func(dir string) (float64, error)
	// Plugins finds the CSI drivers of the node and has them taken, until ctx is done, and
	// DialCSI connects with one.
	Plugins func(ctx context.Context, csi PluginHandler) error
	DialCSI func(socket string) (CSIConn, error)
	// makeCgroups makes the manager of the cgroups.
	makeCgroups func(cgroup.Config) (cgroup.Manager, error)
}

// Mounter mounts filesystems.
type Mounter interface {
	// Tmpfs mounts a tmpfs on target; sizeBytes 0 means the kernel's default.
	Tmpfs(target string, sizeBytes int64) error
	// Huge mounts a hugetlbfs on target.
	Huge(target string, pageBytes, sizeBytes int64) error
	// Bind mounts source (a path, also /proc/self/fd/N) on target.
	Bind(source, target string) error
	// Device mounts the filesystem of a block device, which is made if the device holds
	// nothing, and mended if need be.
	Device(ctx context.Context, device, target, filesystem string, options []string) error
	// Resize makes the filesystem of a block device that is mounted on target as large as
	// the device.
	Resize(ctx context.Context, device, target string) error
	// Remote mounts a filesystem of a server, with what the host has for that. It takes as
	// long as the server does, and ends with ctx.
	Remote(ctx context.Context, source, target, filesystem string, options []string) error
	// UnmountRemote is Unmount for one whose server may not answer any more.
	UnmountRemote(ctx context.Context, target string) error
	// Served are the mounts at and below dir of which a server is asked, or a process.
	Served(dir string) (map[string]bool, error)
	// AskedAt is the first of them that a path comes to, with its links; empty when it comes
	// to none.
	AskedAt(path string) (string, error)
	// Reach is a handle of what a path leads to, or where it comes to the first of them.
	// Nobody is asked for that, whatever becomes of the path meanwhile.
	Reach(path string) (found *os.File, at string, err error)
	// Statfs is statfs(2) of the filesystem at a path, whose server may not answer.
	Statfs(ctx context.Context, path string) (unix.Statfs_t, error)
	// Restrict gives the mount on target options that it can have by itself: ro, noexec …
	Restrict(target string, options []string) error
	// Release ends loop devices that hold file open.
	Release(file string) error
	// Unmount ends the mount on target; nil when there is none.
	Unmount(target string) error
	// Mounted says whether target is a mount point; false when it does not exist.
	Mounted(target string) (bool, error)
	// Share makes what is mounted below dir from now on be seen in other mount
	// namespaces, and what is mounted there below it here; changed: it was not so.
	Share(dir string) (changed bool, err error)
}

// Notifier tells of changes of files. One of manifests may have NotifyRemoved as
// well, with a function that is called for each file that was removed.
type Notifier interface {
	// Notify calls changed after each change of the directory (or of the one
	// file) at path until ctx is done. It returns an error when it cannot watch.
	Notify(ctx context.Context, path string, changed func()) error
}

// Plugin is a plugin of the node, as a CSI driver, that has registered itself.
type Plugin struct {
	// Name is the plugin's own; Endpoint is the socket that it serves at.
	Name, Endpoint string
	// Versions are those of its API that it speaks.
	Versions []string
}

// PluginHandler takes plugins of one type. Its methods are called for many at once, but
// for those of one socket one after the other.
type PluginHandler interface {
	// Register takes a plugin, or says why not. It may ask the plugin, and ends with ctx.
	Register(ctx context.Context, p Plugin) error
	// Deregister is called when the socket of a plugin is gone that Register has taken, or
	// another is in its place. It returns at once.
	Deregister(p Plugin)
}

// CSIConn is a connection with a CSI driver.
type CSIConn interface {
	grpc.ClientConnInterface
	Close() error
}

// HostsGuard keeps the pods' hosts files and termination logs small.
type HostsGuard interface {
	// Watch never waits.
	Watch(file string)
	// Run guards until ctx is done.
	Run(ctx context.Context) error
}
