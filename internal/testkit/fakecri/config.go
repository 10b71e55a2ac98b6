package fakecri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config says what runtime to imitate and what happens in it. The zero Config is a
// containerd 2.x with container events, an empty image store and a registry that has
// every image.
type Config struct {
	// Seed varies the identifiers. Two runtimes with one seed give the n-th sandbox or
	// container of a name the same identifier, whatever else happens at the time.
	Seed int64
	// RuntimeName and RuntimeVersion are what Version answers; "containerd" and "v2.2.9"
	// (1.6.20 with Containerd16) when empty.
	RuntimeName, RuntimeVersion string

	// Images are names that are present from the start.
	Images []string
	// Registry is what can be pulled. Nil: every well-formed name, at once. Otherwise a
	// name that is absent answers NotFound.
	Registry map[string]RemoteImage

	// Script chooses what a process does. When nil or when it returns nil, Scripts
	// decides.
	Script func(Process) *Script
	// Scripts chooses by the image name that the container asked for. An image that is
	// absent runs Forever.
	Scripts map[string]Script

	// Containerd16 imitates containerd 1.6 where it differs from 2.x: no events, no
	// RuntimeConfig, NotFound for stops of what is unknown.
	Containerd16 bool
	// NoEvents makes GetContainerEvents answer Unimplemented, as containerd 1.6 does.
	NoEvents bool
	// NoRuntimeConfig makes RuntimeConfig answer Unimplemented, as containerd 1.6 does.
	NoRuntimeConfig bool
	// CgroupDriver is what RuntimeConfig answers. The zero value is SYSTEMD, as in CRI.
	CgroupDriver runtimeapi.CgroupDriver
	// RuntimeHandlers that RunPodSandbox accepts besides "".
	RuntimeHandlers []string

	// WriteLogs writes the containers' log files for real, in the CRI format, at the
	// sandbox's log directory joined with the container's log path.
	WriteLogs bool
	// Forgetful keeps neither History nor CallLog, so that the runtime can serve for
	// hours. Calls still counts.
	Forgetful bool
	// ImageDir is the mount point that ImageFsInfo and the containers' statistics
	// name; containerd's snapshot directory when empty.
	ImageDir string
	// StreamURL is the base of the URLs that Exec, Attach and PortForward answer;
	// "http://127.0.0.1:1" when empty.
	StreamURL string

	// Latency holds how long each RPC works before its effect, by method name such as
	// "RunPodSandbox". A call whose context ends meanwhile has no effect. "CNI DEL" is how
	// long the network of a sandbox takes to go, after the sandbox has become NotReady; a
	// call whose context ends meanwhile leaves the network up.
	Latency map[string]time.Duration

	// Teardown is asked when the network of a sandbox is to be taken down, for the n-th
	// time from 0 on: with an error it fails, and the network stays up. It runs under the
	// runtime's lock and must not call the Runtime. Nil: it works. See FailTeardowns, too.
	Teardown func(s SandboxInfo, n int) error

	// Faults is asked for each RPC that comes over gRPC, and with method "event" and a
	// *runtimeapi.ContainerEventResponse for each event. For events it runs under the
	// runtime's lock and must not call the Runtime.
	Faults Faults
	// OnTransition is called at each change of a state, under the runtime's lock: it sees
	// the state of that very moment through View and must not call the Runtime itself.
	OnTransition func(Transition, View)
}

// Faults decides what goes wrong with a call. It must be safe for concurrent use.
type Faults func(ctx context.Context, method string, req any) Fault

// RemoteImage is an image in the registry.
type RemoteImage struct {
	// PullDelay is how long a pull takes.
	PullDelay time.Duration
	// Err, if not nil, is what a pull ends with after PullDelay.
	Err error
	// Size in bytes; 1 MiB when 0.
	Size uint64
	// User is the image's user: a number or a name; empty means root.
	User string
	// NeedAuth refuses pulls without a user name or token in the request.
	NeedAuth bool
	// Password, if not empty, is the only one with which a pull gets through.
	Password string
	// Content distinguishes versions under one tag: another Content is another digest.
	Content string
	// Pinned images are reported as such.
	Pinned bool
}

func (c *Config) applyDefaults() {
	if c.RuntimeName == "" {
		c.RuntimeName = "containerd"
	}
	if c.RuntimeVersion == "" {
		c.RuntimeVersion = "v2.2.9"
		if c.Containerd16 {
			c.RuntimeVersion = "1.6.20~ds1"
		}
	}
	c.NoEvents = c.NoEvents || c.Containerd16
	c.NoRuntimeConfig = c.NoRuntimeConfig || c.Containerd16
	if c.ImageDir == "" {
		c.ImageDir = snapshotDir
	}
	if c.StreamURL == "" {
		c.StreamURL = "http://127.0.0.1:1"
	}
}
