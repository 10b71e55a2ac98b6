// Package fsatomic writes files that are either the old or the new content,
// whatever happens in between, and checkpoints that say when they are damaged.
// It must never leave a half-written file under the name that is read.
package fsatomic

import (
	"fmt"
	"os"
	"path/filepath"
)

// WriteFile replaces path with data: temporary file in the same directory,
// fsync, rename, fsync of the directory. mode is set as given, whatever the
// umask. The directory must exist.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	return write(path, data, mode, nil)
}

// WriteFileOwned is WriteFile with an owner, set before the file gets its name.
// A uid or gid of -1 stays as it is.
func WriteFileOwned(path string, data []byte, mode os.FileMode, uid, gid int) error {
	return write(path, data, mode, func(f *os.File) error { return f.Chown(uid, gid) })
}

func write(path string, data []byte, mode os.FileMode, prepare func(*os.File) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: create temporary file: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if prepare != nil {
		if err := prepare(f); err != nil {
			return err
		}
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes the names in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("fsync directory %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("fsync directory %s: %w", dir, err)
	}
	return nil
}
