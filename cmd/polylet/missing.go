package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// missingWithin is how long a service waits for a configuration that is not there: as
// long as it is until kubeadm's unit has a kubelet started again, which reads then what
// the flags have become.
const missingWithin = 10 * time.Second

// endLater ends a service whose configuration is not there, such as that of a node that
// kubeadm has not joined yet: at once, or, when a service manager would start it again
// in a tenth of a second, when the file comes, a while later, or when it is told to.
// It does not go on with the file by itself: the directories that its unit lets it
// write to may not have been there, either.
func endLater(ctx context.Context, err error) error {
	var missing *fs.PathError
	if os.Getenv("NOTIFY_SOCKET") == "" || !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &missing) {
		return err
	}
	klog.Background().Info("There is no configuration; this process waits for it to come, and ends", "file", missing.Path, "after", missingWithin)
	if _, notifyErr := daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS=Waiting for "+missing.Path); notifyErr != nil {
		klog.Background().Error(notifyErr, "Could not tell systemd that this process waits")
	}
	dirs := newDirectories(logr.Discard())
	defer dirs.close()
	dirs.want(filepath.Dir(missing.Path), filepath.Base(missing.Path))
	dirs.look()
	end := time.NewTimer(missingWithin)
	defer end.Stop()
	for {
		if _, statErr := os.Stat(missing.Path); statErr == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			return err
		case event := <-dirs.events():
			dirs.saw(event)
		case lost := <-dirs.errors():
			dirs.lost(lost)
		case <-dirs.again.C:
			dirs.look()
		}
	}
}
