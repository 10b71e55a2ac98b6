package atomicwriter

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
)

// What is done to a tree goes from directory to directory by what is open: names may be as long
// as a path can be, and a path that is looked up anew for each directory in it takes as many
// steps as the square of its length.

// write writes the files into a new directory.
func (t *transaction) write(dir string) error {
	root, err := t.root.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, name := range t.files.names() {
		if err := t.at("write file"); err != nil {
			return err
		}
		if err := t.files[name].write(root, name); err != nil {
			return err
		}
	}
	return nil
}

// write writes one file with exactly its mode and owner, whatever the umask, and the directories
// that it lies in.
func (f File) write(root *os.Root, name string) error {
	dir, err := makeAbove(root, name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	base := path.Base(name)
	if err := dir.WriteFile(base, f.Data, fs.FileMode(f.Mode).Perm()); err != nil {
		return err
	}
	if f.UID != nil {
		if err := dir.Chown(base, int(*f.UID), -1); err != nil {
			return err
		}
	}
	return dir.Chmod(base, fs.FileMode(f.Mode).Perm())
}

// makeAbove opens the directory that a file is to lie in, and makes it first if need be.
func makeAbove(root *os.Root, name string) (*os.Root, error) {
	dir, err := root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	above := path.Dir(name)
	if above == "." {
		return dir, nil
	}
	for element := range strings.SplitSeq(above, "/") {
		next, err := makeDir(dir, element)
		_ = dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

func makeDir(in *os.Root, name string) (*os.Root, error) {
	err := in.Mkdir(name, 0o755)
	if err == nil {
		err = in.Chmod(name, 0o755)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return in.OpenRoot(name)
}

// same compares what is on the disk with what is to be there.
func (t *transaction) same(current string) bool {
	root, err := t.root.OpenRoot(current)
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }()
	return t.sameIn(root, t.files.names(), 0)
}

// sameIn compares a directory with the files that are to be in it and below it, whose names are
// sorted and have its path, of that many bytes, before them.
func (t *transaction) sameIn(dir *os.Root, names []string, above int) bool {
	wanted := map[string][]string{} // the files that an entry is, or holds
	for len(names) > 0 {
		entry, _, isDir := strings.Cut(names[0][above:], "/")
		n := 1
		for isDir && n < len(names) && strings.HasPrefix(names[n][above:], entry+"/") {
			n++
		}
		wanted[entry], names = names[:n], names[n:]
	}
	entries, err := entriesOf(dir)
	if err != nil {
		return false
	}
	found := 0
	for _, e := range entries {
		name := e.Name()
		files, at := wanted[name], above+len(name)
		switch {
		case len(files) > 0 && len(files[0]) == at:
			if !e.Type().IsRegular() || !t.files[files[0]].same(dir, name) {
				return false
			}
		case !e.IsDir() || !t.sameBelow(dir, name, files, at+1): // one without files is a mount point
			return false
		}
		if len(files) > 0 {
			found++
		}
	}
	return found == len(wanted)
}

func (t *transaction) sameBelow(dir *os.Root, name string, files []string, above int) bool {
	below, err := dir.OpenRoot(name)
	if err != nil {
		return false
	}
	defer func() { _ = below.Close() }()
	return t.sameIn(below, files, above)
}

func (f File) same(dir *os.Root, name string) bool {
	have, err := dir.ReadFile(name)
	return err == nil && bytes.Equal(have, f.Data)
}

func entriesOf(dir *os.Root) ([]fs.DirEntry, error) {
	file, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return file.ReadDir(-1)
}
