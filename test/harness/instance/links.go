package instance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// containerLogs is where node agents put one link per container log.
const containerLogs = "/var/log/containers"

// removeLogLinks removes the links that lead into the instance's directory.
func (i *Instance) removeLogLinks() error {
	links, err := filepath.Glob(filepath.Join(containerLogs, "*.log"))
	if err != nil {
		return err
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, i.Dir+"/") {
			continue
		}
		if err := os.Remove(link); err != nil {
			return fmt.Errorf("remove a container log's link: %w", err)
		}
	}
	return nil
}
