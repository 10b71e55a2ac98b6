// Package fsatomic writes files that are either the old or the new content,
// whatever happens in between, and checkpoints that say when they are damaged.
// It must never leave a half-written file under the name that is read.
package fsatomic

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// TemporaryMark is in the name of a file that is being written, behind a dot and the name
// that it is to have.
const TemporaryMark = ".tmp-"

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
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+TemporaryMark+"*")
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
	if err := replace(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// replace renames a file to path. A directory in its place is set aside.
func replace(file, path string) error {
	err := os.Rename(file, path)
	if err == nil {
		return nil
	}
	if info, statErr := os.Lstat(path); statErr != nil || !info.IsDir() {
		return err
	}
	if _, asideErr := SetAside(path); asideErr != nil {
		return errors.Join(err, asideErr)
	}
	return os.Rename(file, path)
}

// asideMark is in the name of what was set aside.
const asideMark = ".damaged-"

// AsideOf is a name, not taken yet, under which path can be set aside.
func AsideOf(path string) string {
	return path + asideMark + time.Now().UTC().Format("20060102T150405.000000000")
}

// IsAside says whether a name is of something that was set aside.
func IsAside(name string) bool { return strings.Contains(name, asideMark) }

// Asides are the names under which path was set aside before.
func Asides(path string) ([]string, error) {
	found, err := filepath.Glob(globQuote.Replace(path) + asideMark + "*")
	if err != nil {
		return nil, fmt.Errorf("look for what was set aside of %s: %w", path, err)
	}
	return found, nil
}

// SetAside renames what cannot be used and says how it is called now.
func SetAside(path string) (string, error) {
	aside := AsideOf(path)
	if err := os.Rename(path, aside); err != nil {
		return "", err
	}
	return aside, nil
}

// Clean removes what writes have left in a directory that a crash cut short:
// of the file of this name, or of all with "*". None may be under way.
func Clean(dir, name string) {
	if name != "*" {
		name = globQuote.Replace(name)
	}
	left, _ := filepath.Glob(filepath.Join(globQuote.Replace(dir), "."+name+TemporaryMark+"*"))
	for _, file := range left {
		_ = os.Remove(file) // it takes room, nothing else
	}
}

// Oldest are the files of a directory whose names match a pattern of filepath.Match, the
// oldest first.
func Oldest(dir, pattern string) []string {
	files, _ := filepath.Glob(filepath.Join(globQuote.Replace(dir), pattern)) // a bad pattern has none
	slices.SortStableFunc(files, func(a, b string) int { return modified(a).Compare(modified(b)) })
	return files
}

// KeepNewest removes all but the newest of them.
func KeepNewest(dir, pattern string, most int) {
	files := Oldest(dir, pattern)
	for _, file := range files[:max(len(files)-most, 0)] {
		_ = os.Remove(file) // it takes room, nothing else
	}
}

func modified(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

var globQuote = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

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
