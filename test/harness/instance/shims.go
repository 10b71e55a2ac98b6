package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// removeShimFiles removes what containerd and its shims keep outside the
// instance's directory for each container: a socket, whose address stands in the
// container's bundle.
func (i *Instance) removeShimFiles() error {
	bundles, err := filepath.Glob(i.Path("state", "io.containerd.runtime.v2.task", "*", "*"))
	if err != nil {
		return err
	}
	socket := regexp.MustCompile(`/run/containerd/s/[0-9a-f]{64}`)
	for _, bundle := range bundles {
		var files []string
		for _, name := range []string{"bootstrap.json", "address"} {
			data, err := os.ReadFile(filepath.Join(bundle, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("find a shim's socket: %w", err)
			}
			files = append(files, string(socket.Find(data)))
		}
		for _, f := range files {
			if err := os.Remove(f); f != "" && err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove what a shim left: %w", err)
			}
		}
	}
	return nil
}
