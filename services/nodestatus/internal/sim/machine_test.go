package sim

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// good is what the machine has a number of.
type good int

const (
	memory     good = iota
	podsMemory      // what all pods together may use
	pids
	nodeBytes
	nodeInodes
	imageBytes // of a filesystem of the images' own
	imageInodes
	goods
)

// layout is where images and containers' writable layers are.
type layout int

const (
	together    layout = iota // on the filesystem of the root directory
	imagesApart               // on another
	layersApart               // images on another, layers not
)

// use is what a pod uses. removed lies in files of its volume that have no name any more
// and are open.
type use struct {
	memory, pids        uint64
	volume, logs, layer uint64
	removed             uint64
	files, layerFiles   uint64
	// kept is what the runtime keeps of the layer of a container that has ended, while the
	// next one runs.
	kept, keptFiles uint64
}

// of is how much of a resource that is.
func (u use) of(r good, l layout) uint64 {
	layers, other := u.layer+u.kept, u.volume+u.logs+u.removed
	if r == nodeInodes || r == imageInodes {
		layers, other = u.layerFiles+u.keptFiles, u.files
		if u.removed > 0 {
			other++
		}
	}
	switch r {
	case memory, podsMemory:
		return u.memory
	case pids:
		return u.pids
	case nodeBytes, nodeInodes:
		if l == imagesApart {
			layers = 0
		}
		return layers + other
	case imageBytes, imageInodes:
		if l == imagesApart {
			return layers
		}
	}
	return 0
}

// moment is how the machine stood from a time on.
type moment struct {
	at   time.Time
	left [goods]uint64
	uses map[string]use // by pod's name
}

// machine is what there is and who uses it: the truth, of which stats tells.
type machine struct {
	layout   layout
	capacity [goods]uint64
	// other is what is used beside pods; images is what lies in images that nobody uses.
	other  [goods]uint64
	images uint64
	uses   map[string]use
	// past is how it stood, oldest first, back to kept.
	past []moment
}

// kept is how long it is known how the machine stood.
const kept = 5 * time.Minute

// images lie on their own filesystem, or on the node's.
func (m *machine) imagesOn(inodes bool) good {
	switch {
	case m.layout == together && inodes:
		return nodeInodes
	case m.layout == together:
		return nodeBytes
	case inodes:
		return imageInodes
	}
	return imageBytes
}

// resourceOf is what a signal is of.
func (m *machine) resourceOf(signal string) good {
	inodes := strings.HasSuffix(signal, ".inodesFree")
	switch name, _, _ := strings.Cut(signal, "."); name {
	case "memory":
		return memory
	case "allocatableMemory":
		return podsMemory
	case "pid":
		return pids
	case "imagefs":
		return m.imagesOn(inodes)
	case "containerfs":
		if m.layout == imagesApart {
			return m.imagesOn(inodes)
		}
	}
	if inodes {
		return nodeInodes
	}
	return nodeBytes
}

func (m *machine) left(r good) uint64 {
	used := m.other[r]
	if r == m.imagesOn(false) {
		used += m.images
	}
	for _, u := range m.uses {
		used += u.of(r, m.layout)
	}
	return m.capacity[r] - min(used, m.capacity[r])
}

// note keeps how it stands now.
func (m *machine) note() {
	now := moment{at: time.Now(), uses: maps.Clone(m.uses)}
	for r := range goods {
		now.left[r] = m.left(r)
	}
	m.past = append(m.past, now)
	old := slices.IndexFunc(m.past, func(p moment) bool { return now.at.Sub(p.at) < kept })
	if old > 100 {
		m.past = slices.Clone(m.past[old-1:])
	}
}

// since are the moments that any time since then was in.
func (m *machine) since(then time.Time) []moment {
	for i, p := range slices.Backward(m.past) {
		if !p.at.After(then) {
			return m.past[i:]
		}
	}
	return m.past
}

// leftSince is the least and the most that was left since then.
func (m *machine) leftSince(r good, then time.Time) (least, most uint64) {
	least = ^uint64(0)
	for _, p := range m.since(then) {
		least, most = min(least, p.left[r]), max(most, p.left[r])
	}
	return least, most
}

// usedSince is the least and the most that a pod used since then.
func (m *machine) usedSince(name string, r good, then time.Time) (least, most uint64) {
	least = ^uint64(0)
	for _, p := range m.since(then) {
		n := p.uses[name].of(r, m.layout)
		least, most = min(least, n), max(most, n)
	}
	return least, most
}
