package source

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/klog/v2"
)

// dropRemoved takes away the pods whose files were removed. Of those that are
// there again the pods are wanted anew, and so begin anew.
func (f *files) dropRemoved(log klog.Logger) {
	removed, before := f.removed.take(), len(f.known)
	maps.DeleteFunc(f.known, func(path string, e *entry) bool {
		return slices.Contains(removed, filepath.Clean(path)) && f.dropped(path, e)
	})
	if len(f.known) == before {
		return
	}
	// Nothing takes their place before it is read what is there now.
	var entries []*entry
	for _, path := range slices.Sorted(maps.Keys(f.known)) {
		if e := f.known[path]; e.pod == nil || f.feed.running[e.pod.UID] == e.pod {
			entries = append(entries, e)
		}
	}
	has := f.feed.has
	f.feed.publish(log, entries)
	f.feed.has = has
}

// dropped says whether a file that was removed takes its pod along. Editors move a
// file away to write it anew: as long as what is there then cannot be read, or when
// what was there before could not, that is a change like one in place.
func (f *files) dropped(path string, e *entry) bool {
	data, err := f.sources.readBounded(path, f.sources.cfg.MaxManifestBytes)
	switch {
	case errors.Is(err, os.ErrNotExist) && !isLink(path):
		return true
	case errors.Is(err, errWriting):
		f.removed.add(filepath.Clean(path))
		f.writing = true // it is decided when it is written
		return false
	case err != nil || e.err != nil:
		return false
	}
	_, _, err = f.parse(path, data)
	return err == nil
}

// removals are paths of files that were removed. Safe for concurrent use.
type removals struct {
	mu    sync.Mutex
	paths []string
}

func (r *removals) add(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.paths, path) {
		r.paths = append(r.paths, path)
	}
}

func (r *removals) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	paths := r.paths
	r.paths = nil
	return paths
}
