package logrotate

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

const (
	// sweepFirst and sweepEvery say when links are looked at: what removes a
	// container's log removes its link, so only a crash between the two or a
	// runtime that lost its files leaves one.
	sweepFirst = 10 * time.Minute
	sweepEvery = time.Hour
	// youngest is the age below which a link is left alone: its log may be
	// about to be made.
	youngest = 10 * time.Minute
)

// link makes the link to a container's log if there is none: what starts a
// container makes it, but may have been killed in between, or never have had the
// runtime's answer. A log that is removed meanwhile gets none.
func (r *Rotator) link(c podstate.ContainerRow) error {
	if r.cfg.LinksDir == "" || c.State != podstate.StateRunning && c.State != podstate.StateExited {
		return nil
	}
	if _, err := r.locate(c.LogPath); err != nil || !exists(c.LogPath) {
		return nil //nolint:nilerr // a log elsewhere is not ours
	}
	link := filepath.Join(r.cfg.LinksDir, podcache.LogLink(c.PodName, c.Namespace, c.Name, c.ID))
	if err := os.Symlink(c.LogPath, link); err != nil {
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
			return nil // it is there, or nobody wants links yet
		}
		return err
	}
	if !exists(c.LogPath) {
		return os.Remove(link)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// sweepLinks removes links to logs that are gone, from time to time.
func (r *Rotator) sweepLinks(ctx context.Context) {
	timer := time.NewTimer(sweepFirst)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if n, err := r.sweep(time.Now()); err != nil {
			klog.FromContext(ctx).Error(err, "Could not remove links to logs that are gone", "directory", r.cfg.LinksDir)
		} else if n > 0 {
			klog.FromContext(ctx).Info("Removed links to logs that are gone", "directory", r.cfg.LinksDir, "links", n)
		}
		timer.Reset(sweepEvery)
	}
}

// sweep removes the links into the log directory whose log is gone and whose
// container does not run. Other links are not ours.
func (r *Rotator) sweep(now time.Time) (removedLinks int, err error) {
	dir, err := os.OpenRoot(r.cfg.LinksDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = dir.Close() }()
	entries, err := fs.ReadDir(dir.FS(), ".")
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		info, lost := dir.Lstat(e.Name())
		if lost != nil || now.Sub(info.ModTime()) < youngest {
			continue
		}
		target, lost := dir.Readlink(e.Name())
		if lost != nil || !strings.HasPrefix(filepath.Clean(target), r.cfg.PodLogsDir+"/") || r.isRunning(filepath.Clean(target)) {
			continue
		}
		if _, there := os.Lstat(target); !errors.Is(there, fs.ErrNotExist) {
			continue
		}
		if gone := remove(dir, e.Name()); gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		removedLinks++
	}
	return removedLinks, err
}
