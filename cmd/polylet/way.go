package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// way is what leads from the root to some directories.
type way struct {
	// places are the directories on it, by their paths without links.
	places map[string]place
	// steps are the names in them that it goes along: directories and links.
	steps map[string]bool
	// gone are the directories that it does not reach.
	gone map[string]bool
}

// place is a directory on the way. The zero place is none.
type place struct {
	info  fs.FileInfo
	all   bool     // everything in it matters
	names []string // or these names
}

// wanted says whether what is in it matters; else it is only on the way.
func (p place) wanted() bool { return p.all || len(p.names) > 0 }

func (p place) matters(name string) bool { return p.all || slices.Contains(p.names, name) }

// wayTo looks up the way to directories, absolute paths all, of which the names
// matter, or all.
func wayTo(wanted map[string][]string) way {
	w := way{places: map[string]place{}, steps: map[string]bool{}, gone: map[string]bool{}}
	for dir, names := range wanted {
		end, found := w.walk(dir)
		if !found {
			w.gone[dir] = true
			continue
		}
		p := w.places[end]
		p.all, p.names = p.all || len(names) == 0, append(p.names, names...)
		w.places[end] = p
	}
	return w
}

// walk adds the way to dir as far as it goes, and returns dir without links.
func (w way) walk(dir string) (end string, found bool) {
	end = "/"
	if !w.reach(end) {
		return "", false
	}
	for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		step := filepath.Join(end, name)
		w.steps[step] = true
		next, err := filepath.EvalSymlinks(step)
		if err != nil || !w.reach(next) {
			return "", false
		}
		end = next
	}
	return end, true
}

func (w way) reach(dir string) bool {
	if _, known := w.places[dir]; known {
		return true
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	w.places[dir] = place{info: info}
	return true
}
