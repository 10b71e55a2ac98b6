// Package atomicwriter writes a set of files into a directory so that a reader sees
// either all of the old or all of the new ones.
//
// It owns the layout: a directory ..<time>.<random> with the files, a symlink
// ..data to it that is swapped by one rename, and one symlink per top-level
// name into ..data. It must never touch anything outside the directory it is
// given, whatever names and symlinks it finds.
package atomicwriter

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// File is one file.
type File struct {
	Data []byte
	// Mode are the permission bits.
	Mode uint32
	// UID owns the file when set.
	UID *int64
}

// Payload is the files by their relative path.
type Payload map[string]File

const (
	maxPath = 4096
	maxName = 255
)

// Validate says why a payload cannot be written: an absolute, empty or too long
// path, one that leaves the directory or takes a name of the layout's own, or
// one that is a file and a directory at once.
func (p Payload) Validate() error {
	for name := range p {
		if err := ValidatePath(name); err != nil {
			return err
		}
	}
	names := p.cleaned().names()
	for _, name := range names {
		if i, _ := slices.BinarySearch(names, name+"/"); i < len(names) && strings.HasPrefix(names[i], name+"/") {
			return fmt.Errorf("path %q cannot be a file: %q lies below it", name, names[i])
		}
	}
	return nil
}

// ValidatePath says why a path cannot be a payload's.
func ValidatePath(name string) error {
	switch {
	case name == "":
		return errors.New("a file's path is empty")
	case strings.HasPrefix(name, "/"):
		return fmt.Errorf("path %q must be relative", name)
	case len(name) > maxPath:
		return fmt.Errorf("path %.40q… is longer than %d bytes", name, maxPath)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("path %q holds a zero byte", name)
	case strings.HasPrefix(path.Clean(name), ".."):
		return fmt.Errorf("path %q must not start with '..'", name)
	}
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "..":
			return fmt.Errorf("path %q must not contain '..'", name)
		case len(element) > maxName:
			return fmt.Errorf("path %.40q… has a name longer than %d bytes", name, maxName)
		}
	}
	if path.Clean(name) == "." {
		return fmt.Errorf("path %q names the directory itself", name)
	}
	return nil
}

// cleaned is the payload with its paths in their shortest form.
func (p Payload) cleaned() Payload {
	out := make(Payload, len(p))
	for _, name := range slices.Sorted(maps.Keys(p)) {
		out[path.Clean(name)] = p[name]
	}
	return out
}

// names are the paths in order, those in one directory one after the other.
func (p Payload) names() []string { return slices.Sorted(maps.Keys(p)) }

// Directories is how many of them are made for the files.
func (p Payload) Directories() int {
	n, before := 0, ""
	for _, name := range p.cleaned().names() {
		same := 0
		for same < min(len(name), len(before)) && name[same] == before[same] {
			same++
		}
		n += strings.Count(name[same:], "/")
		before = name
	}
	return n
}

// top lists the top-level names of a cleaned payload.
func (p Payload) top() map[string]bool {
	names := map[string]bool{}
	for name := range p {
		first, _, _ := strings.Cut(name, "/")
		names[first] = true
	}
	return names
}
