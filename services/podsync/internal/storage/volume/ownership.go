package volume

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// groupOf is the group that owns the pod's volumes; nil for none.
func groupOf(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// own gives a tree to a group, deepest first: files readable (and writable
// unless readOnly) for owner and group, directories searchable and with the
// group inherited. No container uses the tree yet, so nobody can swap a
// symlink in between.
func own(root string, group *int64, readOnly bool) error {
	if group == nil {
		return nil
	}
	var paths []string
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil {
		return fmt.Errorf("give %s to group %d: %w", root, *group, err)
	}
	for i := len(paths) - 1; i >= 0; i-- {
		if err := ownOne(paths[i], int(*group), readOnly); err != nil {
			return fmt.Errorf("give %s to group %d: %w", paths[i], *group, err)
		}
	}
	return nil
}

func ownOne(path string, group int, readOnly bool) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := os.Lchown(path, -1, group); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	mode := info.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if readOnly {
		mode |= 0o440
	} else {
		mode |= 0o660
	}
	if info.IsDir() {
		mode |= fs.ModeSetgid | 0o110
	}
	return os.Chmod(path, mode)
}
