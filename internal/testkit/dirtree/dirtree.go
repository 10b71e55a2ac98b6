// Package dirtree tells for tests whether something was written below a directory. It must
// never follow a link.
package dirtree

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// Of is all that there is below a directory, with how each is, by inode, mode and the time
// at which it was written last.
func Of(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		all[path] = fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino, info.Mode(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Written are the paths that have come, gone or been written to from one time to another.
func Written(before, after map[string]string) (paths []string) {
	for path, was := range before {
		if after[path] != was {
			paths = append(paths, path)
		}
	}
	for path := range after {
		if _, was := before[path]; !was {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}
