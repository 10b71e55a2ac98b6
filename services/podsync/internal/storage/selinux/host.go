package selinux

import (
	"errors"
	"fmt"
	"io/fs"
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

	// setLabel is the kernel's; nil asks that.
	setLabel func(path, label string) error

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

// ofContainers is the label in the policy's file of containers' labels, or in that of
// containers' own policy, where there is one: as runtimes read them.
func (h *Host) ofContainers() string {
	const own = "/usr/share/containers/selinux/contexts"
	if _, err := os.Stat(h.at(own)); err == nil {
		return unquoted(setting(h.at(own), "file"))
	}
	kind := unquoted(setting(h.at("/etc/selinux/config"), "SELINUXTYPE"))
	if kind == "" || strings.ContainsRune(kind, '/') {
		return ""
	}
	return unquoted(setting(h.at(filepath.Join("/etc/selinux", kind, "contexts/lxc_contexts")), "file"))
}

func unquoted(value string) string { return strings.Trim(value, `"`) }

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

// ofPlugins is the label of what plugins in containers may use, in the kubelet's words.
const ofPlugins = "system_u:object_r:container_file_t:s0"

// OpenToPlugins lets plugins in containers without privileges make their sockets in
// directories, where the policy would keep them from it. One that is not there is left out.
func (h *Host) OpenToPlugins(dirs ...string) (err error) {
	if !h.Enabled() {
		return nil
	}
	set := h.setLabel
	if set == nil {
		set = func(path, label string) error { return unix.Setxattr(path, "security.selinux", []byte(label), 0) }
	}
	for _, dir := range dirs {
		if one := set(h.at(dir), ofPlugins); one != nil && !errors.Is(one, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("give %s the SELinux label %s: %w", dir, ofPlugins, one))
		}
	}
	return err
}
