package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// stamp is the time in the name of a rotated log, in local time.
const stamp = "20060102-150405"

const (
	zipped     = ".gz"
	unfinished = ".tmp"
)

// place is where a log lies.
type place struct {
	// dirs lead from the log directory to the log's own.
	dirs []string
	// name of the log's file.
	name string
}

// locate splits the path of a log; it must lie below the log directory.
func (r *Rotator) locate(path string) (place, error) {
	rel, err := filepath.Rel(r.cfg.PodLogsDir, path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return place{}, fmt.Errorf("log %q is not below %s: %w", path, r.cfg.PodLogsDir, fs.ErrPermission)
	}
	parts := strings.Split(rel, string(filepath.Separator))
	return place{dirs: parts[:len(parts)-1], name: parts[len(parts)-1]}, nil
}

// open opens the directory of a log. None of the directories on the way may be
// a link, and everything that is done goes by the directory that was opened.
func (r *Rotator) open(p place) (*os.Root, error) {
	dir, err := os.OpenRoot(r.cfg.PodLogsDir)
	if err != nil {
		return nil, err
	}
	for _, name := range p.dirs {
		below, err := enter(dir, name)
		_ = dir.Close()
		if err != nil {
			return nil, err
		}
		dir = below
	}
	return dir, nil
}

// enter opens a directory that is no link.
func enter(dir *os.Root, name string) (*os.Root, error) {
	want, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !want.IsDir() {
		return nil, fmt.Errorf("%s in %s is not a directory: %w", name, dir.Name(), fs.ErrInvalid)
	}
	below, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if got, err := below.Stat("."); err != nil || !os.SameFile(want, got) {
		_ = below.Close()
		return nil, fmt.Errorf("%s in %s was exchanged while it was opened: %w", name, dir.Name(), fs.ErrInvalid)
	}
	return below, nil
}

// reopen has the runtime make a log that is missing.
func (r *Rotator) reopen(ctx context.Context, c podstate.ContainerRow) error {
	if err := r.deps.Runtime.ReopenLog(ctx, c.ID); err != nil {
		return fmt.Errorf("log %s is missing; let the runtime make it: %w", c.LogPath, err)
	}
	return nil
}

// rotate gives a full log another name and has the runtime open a new one.
func (r *Rotator) rotate(ctx context.Context, c podstate.ContainerRow) error {
	p, err := r.locate(c.LogPath)
	if err != nil {
		return err
	}
	dir, err := r.open(p)
	if err != nil {
		return fmt.Errorf("rotate log %s: %w", c.LogPath, err)
	}
	handed := false
	defer func() {
		if !handed {
			_ = dir.Close()
		}
	}()
	kept, err := clean(dir, p.name, int(r.maxFiles.Load())-2, func(name string) bool { return r.zipper.working(c.LogPath, name) })
	if err != nil {
		return fmt.Errorf("remove old files of log %s: %w", c.LogPath, err)
	}
	if err := r.replace(ctx, c, dir, p.name); err != nil {
		return err
	}
	// All but the one just made are compressed: readers may still be at that.
	kept = slices.DeleteFunc(kept, func(name string) bool { return strings.HasSuffix(name, zipped) })
	handed = len(kept) > 0 && r.zipper.add(job{dir: dir, path: c.LogPath, names: kept})
	return nil
}

// replace renames the log; when the runtime cannot open a new one it gets its
// name back, because the runtime writes to it still.
func (r *Rotator) replace(ctx context.Context, c podstate.ContainerRow, dir *os.Root, name string) error {
	to := name + "." + time.Now().Format(stamp)
	for _, taken := range []string{to, to + zipped} {
		if _, err := dir.Lstat(taken); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotate log %s: %s exists already; the clock may have been set back", c.LogPath, taken)
		}
	}
	if err := dir.Rename(name, to); err != nil {
		return fmt.Errorf("rotate log %s: %w", c.LogPath, err)
	}
	err := r.deps.Runtime.ReopenLog(ctx, c.ID)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("rotate log %s: let the runtime open a new one: %w", c.LogPath, err)
	if _, lost := dir.Lstat(name); errors.Is(lost, fs.ErrNotExist) {
		if back := dir.Rename(to, name); back != nil {
			return errors.Join(err, back)
		}
	}
	return err
}

// clean removes what is left of compressions that did not end, files that are
// there compressed as well, and the oldest beyond keep. It returns the others,
// oldest first. Files that no rotation made are not touched.
func clean(dir *os.Root, log string, keep int, working func(name string) bool) ([]string, error) {
	names, err := rotated(dir, log)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, name := range names {
		there[name] = true
	}
	var kept []string
	for _, name := range names {
		half := strings.HasSuffix(name, unfinished)
		switch {
		case half && working(strings.TrimSuffix(name, unfinished)):
		case half, there[name+zipped]:
			err = errors.Join(err, remove(dir, name))
		default:
			kept = append(kept, name)
		}
	}
	for len(kept) > max(keep, 0) {
		err = errors.Join(err, remove(dir, kept[0]))
		kept = kept[1:]
	}
	return kept, err
}

// rotated lists the files that rotations of a log made, oldest first.
func rotated(dir *os.Root, log string) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	all, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(name string) bool { return !isRotated(name, log) })
	slices.Sort(all)
	return all, nil
}

// isRotated tells that a rotation of this log made the file.
func isRotated(name, log string) bool {
	rest, ok := strings.CutPrefix(name, log+".")
	if !ok {
		return false
	}
	rest = strings.TrimSuffix(strings.TrimSuffix(rest, unfinished), zipped)
	_, err := time.Parse(stamp, rest)
	return err == nil
}

func remove(dir *os.Root, name string) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
