package atomicwriter

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	dataLink = "..data"
	newLink  = "..data_tmp"
)

// Writer writes payloads into one directory.
type Writer struct {
	// Dir exists already.
	Dir string
	// Finish is called with the new directory before it becomes visible, to set
	// ownership; may be nil.
	Finish func(dir string) error
	// Keep are directories of Dir, by name, that somebody else has use for: they stay,
	// and are seen instead of what the payload has of their names.
	Keep map[string]bool
	// step is called before each step that changes the disk; tests crash there.
	step func(name string) error
}

// Write makes the directory hold exactly the payload and says whether anything
// changed. A crash at any point leaves the old or the new files visible, and
// the next Write cleans up after it.
func (w Writer) Write(p Payload) (bool, error) {
	if err := p.Validate(); err != nil {
		return false, err
	}
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return false, fmt.Errorf("open the volume's directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	t := transaction{Writer: w, root: root, files: p.cleaned()}
	changed, err := t.run()
	if err != nil {
		return changed, fmt.Errorf("write into %s: %w", w.Dir, err)
	}
	return changed, nil
}

type transaction struct {
	Writer
	root  *os.Root
	files Payload
}

func (t *transaction) at(name string) error {
	if t.step == nil {
		return nil
	}
	return t.step(name)
}

func (t *transaction) run() (changed bool, err error) {
	current := t.current()
	if current == "" || !t.same(current) {
		changed = true
		if current, err = t.swap(); err != nil {
			return changed, err
		}
	}
	linked, err := t.link()
	if err != nil {
		return changed, err
	}
	removed, err := t.clean(current)
	return changed || linked || removed, err
}

// current is the directory that ..data points to; empty when there is none.
func (t *transaction) current() string {
	target, err := t.root.Readlink(dataLink)
	if err != nil || !isVersion(target) {
		return ""
	}
	if info, err := t.root.Lstat(target); err != nil || !info.IsDir() {
		return ""
	}
	return target
}

// Written says whether a Writer has written a payload to dir: it is there whole then.
func Written(dir string) bool {
	target, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil || !isVersion(target) {
		return false
	}
	info, err := os.Lstat(filepath.Join(dir, target))
	return err == nil && info.IsDir()
}

// isVersion says whether a name is that of a directory with files.
func isVersion(name string) bool {
	return strings.HasPrefix(name, "..") && name != dataLink && name != newLink && len(name) > 2 && !strings.Contains(name, "/")
}

// swap writes a new directory and points ..data to it.
func (t *transaction) swap() (string, error) {
	if err := t.at("make directory"); err != nil {
		return "", err
	}
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails
	dir := ".." + time.Now().UTC().Format("2006_01_02_15_04_05.") + hex.EncodeToString(random)
	if err := t.root.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := t.root.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	if err := t.write(dir); err != nil {
		return "", err
	}
	if t.Finish != nil {
		if err := t.at("finish"); err != nil {
			return "", err
		}
		if err := t.Finish(path.Join(t.Dir, dir)); err != nil {
			return "", err
		}
	}
	if err := t.at("make link"); err != nil {
		return "", err
	}
	if err := t.root.RemoveAll(newLink); err != nil {
		return "", err
	}
	if err := t.root.Symlink(dir, newLink); err != nil {
		return "", err
	}
	if err := t.at("rename link"); err != nil {
		return "", err
	}
	return dir, t.rename()
}

// rename makes the new directory the visible one. Something that is not a
// symlink in the place of ..data is not of our making and goes.
func (t *transaction) rename() error {
	if info, err := t.root.Lstat(dataLink); err == nil && info.IsDir() {
		if err := t.root.RemoveAll(dataLink); err != nil {
			return err
		}
	}
	return t.root.Rename(newLink, dataLink)
}

// link makes the missing top-level symlinks.
func (t *transaction) link() (bool, error) {
	changed := false
	for _, name := range slices.Sorted(maps.Keys(t.files.top())) {
		if t.kept(name) {
			continue
		}
		target := path.Join(dataLink, name)
		have, err := t.root.Readlink(name)
		if err == nil && have == target {
			continue
		}
		if err := t.at("link name"); err != nil {
			return changed, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			if err := t.root.RemoveAll(name); err != nil {
				return changed, err
			}
		}
		if err := t.root.Symlink(target, name); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// kept says whether a name is that of a directory that stays.
func (t *transaction) kept(name string) bool {
	if !t.Keep[name] {
		return false
	}
	info, err := t.root.Lstat(name)
	return err == nil && info.IsDir()
}

// clean removes links of names that are gone, and directories of earlier
// payloads or of writes that a crash ended.
func (t *transaction) clean(current string) (bool, error) {
	entries, err := fs.ReadDir(t.root.FS(), ".")
	if err != nil {
		return false, err
	}
	keep := t.files.top()
	changed := false
	for _, e := range entries {
		name := e.Name()
		ours := name == newLink || (isVersion(name) && name != current)
		if !strings.HasPrefix(name, "..") && !keep[name] {
			target, err := t.root.Readlink(name)
			ours = err == nil && target == path.Join(dataLink, name)
		}
		if !ours {
			continue
		}
		if err := t.at("remove old"); err != nil {
			return changed, err
		}
		if err := t.root.RemoveAll(name); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}
