package selinux

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Host is the policy of the machine.
type Host struct {
	// Root is where the machine's files are; empty is the root.
	Root string

	// There is no policy for a while only: a machine is booted with one, or without.
	once    sync.Once
	enabled bool
	file    string
}

// NewHost reads nothing yet.
func NewHost() *Host { return &Host{} }

// Enabled says whether the kernel enforces a policy, or would tell what it denies.
func (h *Host) Enabled() bool {
	h.once.Do(h.read)
	return h.enabled
}

// File is what the policy has files of containers called.
func (h *Host) File() string {
	h.once.Do(h.read)
	return h.file
}

// read looks once: a machine is booted with a policy, or without.
func (h *Host) read() {
	var st unix.Statfs_t
	if unix.Statfs(h.at("/sys/fs/selinux"), &st) != nil || uint32(st.Type) != unix.SELINUX_MAGIC { //nolint:gosec // It is as wide as that.
		return
	}
	own, err := os.ReadFile(h.at("/proc/self/attr/current"))
	h.enabled = err == nil && strings.Trim(string(own), "\x00\n ") != "kernel" // before a policy is loaded
	h.file = h.ofContainers()
}

func (h *Host) at(path string) string { return filepath.Join("/", h.Root, path) }

// ofContainers is the label in the policy's file of containers' labels.
func (h *Host) ofContainers() string {
	kind := setting(h.at("/etc/selinux/config"), "SELINUXTYPE")
	if kind == "" || strings.ContainsRune(kind, '/') {
		return ""
	}
	return strings.Trim(setting(h.at(filepath.Join("/etc/selinux", kind, "contexts/lxc_contexts")), "file"), `"`)
}

// setting is the last one of a name in a file of name = value; empty when there is none.
func setting(path, name string) (value string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, is, has := strings.Cut(strings.TrimSpace(line), "="); has && strings.TrimSpace(key) == name {
			value = strings.TrimSpace(is)
		}
	}
	return value
}
