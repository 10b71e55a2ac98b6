package mount

import (
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/health"
)

// Sharer makes the mount that a directory is on a shared one, as Kernel does.
type Sharer interface {
	Share(dir string) (changed bool, err error)
}

// ShareRoot lets containers see what is mounted below the root directory, and this
// process what they mount there: volumes with mount propagation, and CSI drivers, need
// that. Without it all else goes on, and health says so.
func ShareRoot(log klog.Logger, s Sharer, root string, told health.Reporter) {
	changed, err := s.Share(root)
	if errors.Is(err, ErrCovered) {
		log.Error(err, "Mounts from before could not be ended; pods that have them cannot be removed before the machine is booted")
		told.Set("mount propagation", false, err.Error())
		return
	}
	if err != nil {
		err = fmt.Errorf("the root directory %s is on no shared mount: %w; volumes with mountPropagation and CSI drivers do not work: run mount --make-rshared on its mount on the host, and keep podsync in the host's mount namespace, or bind the directory into its container with rshared", root, err)
		log.Error(err, "Mount propagation does not work; pods without it are not affected")
		told.Set("mount propagation", false, err.Error())
		return
	}
	if changed {
		log.Info("Made the root directory a shared mount", "directory", root)
	}
	told.Set("mount propagation", true, "")
}
