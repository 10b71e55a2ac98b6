package instance

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/polylet/polylet/test/harness/workspace"
)

// Remove takes away everything of the instance: processes that live in its
// mounts, mounts, network, cgroups, routes and its directory. It works without
// the instance's containerd, so it also cleans up after a crash, and may be
// called again.
func (i *Instance) Remove() error {
	errs := []error{
		i.killProcesses(),
		i.removeShimFiles(),
		i.removeLogLinks(),
		i.removeNetwork(),
		i.unmountAll(),
		i.removeCgroups(),
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean instance %s in %s: %w", i.ID, i.Dir, err)
	}
	i.Release()
	if err := i.removeFiles(); err != nil {
		return fmt.Errorf("clean instance %s: %w", i.ID, err)
	}
	return nil
}

// removeFiles removes the directory, the record last: who is killed meanwhile leaves an
// instance that the next can clear away.
func (i *Instance) removeFiles() error {
	entries, err := os.ReadDir(i.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.Name() != recordName {
			errs = append(errs, os.RemoveAll(i.Path(e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(i.Dir)
}

// CleanStale removes every instance whose owner is gone and that was not meant
// to be kept. Of several that begin at the same time one does it, and the others wait:
// what is being removed belongs to nobody else.
func CleanStale() error {
	unlock, err := lockCleaning()
	if err != nil {
		return err
	}
	defer unlock()
	return each(func(i *Instance) error {
		if i.Keep || i.ownerAlive() {
			return nil
		}
		return i.Remove()
	})
}

// CleanKept removes the kept instances that no process uses.
func CleanKept(report func(id string)) error {
	return each(func(i *Instance) error {
		if i.ownerAlive() {
			return fmt.Errorf("clean instance %s: process %d still uses it; stop that first", i.ID, i.OwnerPid)
		}
		report(i.ID)
		return i.Remove()
	})
}

// lockCleaning waits until nobody else cleans. The lock ends with the process.
func lockCleaning() (unlock func(), err error) {
	path := workspace.Instances() + ".lock"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock the instances: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the instances: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock the instances (%s): %w", path, err)
		}
	}
}

func each(do func(*Instance) error) error {
	dirs, err := os.ReadDir(workspace.Instances())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	var errs []error
	for _, d := range dirs {
		inst, err := load(filepath.Join(workspace.Instances(), d.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // being made, or removed, just now
		}
		if err == nil {
			err = do(inst)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
