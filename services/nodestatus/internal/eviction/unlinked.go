package eviction

import (
	"fmt"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

// Unlinked are files that a container holds open and that have no name any more: they
// use the disk, and whoever measures directories does not see them.
// Source: https://github.com/kubernetes/kubernetes/issues/83107
type Unlinked struct {
	Container string
	// Root lie on the filesystem of the root directory, Layer in the writable layer.
	Root, Layer Files
	// Largest is what the largest of them was called.
	Largest string
}

// Files is how many there are and what lies in them.
type Files struct{ Bytes, Count uint64 }

func (f Files) of(signal string) uint64 {
	if ResourceOf(signal) == inodes {
		return f.Count
	}
	return f.Bytes
}

// unlinkedOf is what of them counts for a signal, and a sentence that names the most of
// it.
func unlinkedOf(by pressure.Signal, layout threshold.Layout, all []Unlinked) (usage int64, named string) {
	p := partsOf(by.Name, layout)
	var most int64
	for _, u := range all {
		var n uint64
		if p.volumes {
			n += u.Root.of(by.Name)
		}
		if p.layers {
			n += u.Layer.of(by.Name)
		}
		if by.Capacity > 0 {
			n = min(n, by.Capacity) // They may share their blocks.
		}
		usage += whole(n)
		if whole(n) > most {
			most, named = whole(n), fmt.Sprintf("container %s holds %s open in files that were removed, the largest of them %q", u.Container, Amount(by.Name, n), u.Largest)
		}
	}
	return usage, named
}
