// Package buildinfo says which build this is. It owns the version constants and
// the rule which builds may talk to each other; it must never read files or
// the environment.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// KubernetesVersion is the Kubernetes release whose node behaviour this build
// matches. It is what the Node reports as its kubelet version.
const KubernetesVersion = "v1.36.6"

// Protocol is the release number of the protos between the five processes.
// It grows by one with each release; peers may differ by one (CONTRIBUTING.md).
const Protocol uint32 = 1

// Version and Commit are set by the linker:
// -X github.com/polylet/polylet/internal/buildinfo.Version=v0.1.0. Read them
// through Get, which falls back to what the toolchain recorded.
var (
	Version = "v0.0.0-dev"
	Commit  = ""
)

// Info identifies an executable.
type Info struct {
	// Version is polylet's own, e.g. "v0.0.0-dev".
	Version string
	// KubernetesVersion is the Kubernetes release that is matched.
	KubernetesVersion string
	// Commit is the git commit, empty when unknown.
	Commit string
	// GoVersion is the toolchain, e.g. "go1.26.8".
	GoVersion string
	// Protocol is the socket protocol's release number.
	Protocol uint32
}

// Get returns the running executable's identity.
func Get() Info {
	info := Info{
		Version:           Version,
		KubernetesVersion: KubernetesVersion,
		Commit:            Commit,
		GoVersion:         runtime.Version(),
		Protocol:          Protocol,
	}
	if info.Commit == "" {
		info.Commit = recordedCommit()
	}
	return info
}

func recordedCommit() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// String is one line for logs and `polylet version`.
func (i Info) String() string {
	commit := i.Commit
	if len(commit) > 12 {
		commit = commit[:12]
	}
	if commit == "" {
		commit = "unknown"
	}
	return fmt.Sprintf("polylet %s (kubernetes %s, commit %s, protocol %d, %s)",
		i.Version, i.KubernetesVersion, commit, i.Protocol, i.GoVersion)
}

// Compatible reports whether a peer that speaks protocol release peer may be
// used by this build: the same release, the one before or the one after.
func Compatible(peer uint32) error {
	distance := int64(peer) - int64(Protocol)
	if distance >= -1 && distance <= 1 {
		return nil
	}
	return fmt.Errorf("peer speaks protocol release %d, this build speaks %d and accepts one release of difference: "+
		"install the same polylet for all five processes", peer, Protocol)
}
