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
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// mostFile bounds what is read of the file.
const mostFile = 16 << 20

// Dir is where plugins look for a kubelet, whatever its root directory is, and where it
// keeps what they have.
const Dir = "/var/lib/kubelet/device-plugins"

// Registered says whether a device plugin has registered the resource with a kubelet that
// had its file in one of these directories. Where there is no file there never was one.
// Source: the kubelet's checkpoint of its device manager.
func Registered(name v1.ResourceName, dirs ...string) (bool, error) {
	for _, dir := range dirs {
		if has, err := registered(name, filepath.Join(dir, "kubelet_internal_checkpoint")); has || err != nil {
			return has, err
		}
	}
	return false, nil
}

func registered(name v1.ResourceName, path string) (bool, error) {
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
		Data struct{ RegisteredDevices map[string]json.RawMessage }
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		return false, fmt.Errorf("find out whether %s is a device plugin's: %w; if no device plugin ever ran on this node, remove the file %s", name, err, path)
	}
	_, has := kept.Data.RegisteredDevices[string(name)]
	return has, nil
}
