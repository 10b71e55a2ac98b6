// Package devices knows which extended resources of the node were a device plugin's
// while a kubelet had it: whoever asks for one needs more of the plugin than the Node's
// word that there is some, and nobody here asks plugins yet.
//
// It must never write: the file is the kubelet's, which may come back.
package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
)

// mostFile bounds what is read of the file.
const mostFile = 16 << 20

// Dir is where plugins look for a kubelet, whatever its root directory is, and where it
// keeps what they have.
const Dir = "/var/lib/kubelet/device-plugins"

// Known is what is known of the kubelet's device plugins.
type Known struct {
	// Checkpoint is whether the kubelet's file is there. Where there is none, no plugin
	// has ever registered anything.
	Checkpoint bool
	// Resources are those that plugins have registered, sorted.
	Resources []v1.ResourceName
}

// Left is what a kubelet has left of its device plugins. Safe for concurrent use.
// Source: the kubelet's checkpoint of its device manager.
type Left struct {
	dirs []string
	last atomic.Pointer[Known]
}

// NewLeft returns a Left of the kubelet whose file is in one of these directories.
func NewLeft(dirs ...string) *Left { return &Left{dirs: dirs} }

// Read looks at the files. What cannot be read is an error, beside what can.
func (l *Left) Read() (Known, error) {
	var known Known
	var failed []error
	names := map[v1.ResourceName]bool{}
	for _, dir := range l.dirs {
		there, err := read(filepath.Join(dir, "kubelet_internal_checkpoint"), names)
		known.Checkpoint = known.Checkpoint || there
		if err != nil {
			failed = append(failed, err)
		}
	}
	known.Resources = slices.Sorted(maps.Keys(names))
	l.last.Store(&known)
	return known, errors.Join(failed...)
}

// Last returns what Read has found last; nothing before. It never waits.
func (l *Left) Last() Known {
	if known := l.last.Load(); known != nil {
		return *known
	}
	return Known{}
}

// Has looks whether a device plugin has registered the resource.
func (l *Left) Has(name v1.ResourceName) (bool, error) {
	known, err := l.Read()
	if slices.Contains(known.Resources, name) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("find out whether %s is a device plugin's: %w", name, err)
	}
	return false, nil
}

// read adds the names in a file to those that are known, and says whether it is there.
func read(path string, names map[v1.ResourceName]bool) (there bool, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > mostFile) {
		err = fmt.Errorf("%s is not a file of at most %d bytes", path, mostFile)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	var kept struct {
		Data struct {
			RegisteredDevices map[v1.ResourceName]json.RawMessage
		}
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		return true, fmt.Errorf("read which resources are device plugins': %w; if no device plugin ever ran on this node, remove the file %s", err, path)
	}
	for name := range kept.Data.RegisteredDevices {
		names[name] = true
	}
	return true, nil
}
