package csi

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// Unsettled is a volume that no pod of the node has and that could not be taken from it: the
// Node says that it is in use until it is, and no pod's story tells of it.
type Unsettled struct {
	// Plugin in the kubelet's words, e.g. kubernetes.io/csi, and the Driver of that one.
	Plugin, Driver string
	// Handle is what the driver calls it, or the rest of what Kubernetes calls one of Disks.
	Handle string
	// Path is where it is staged, and PV as whose device; empty where that is not known.
	Path, PV string
	Device   bool
	// Why it could not be, and what a person can do.
	Why, Advice string
	// Since when it fails, and when it is tried again.
	Since, Retry time.Time
}

// Unsettled are all of them, from memory, in order.
func (c *Volumes) Unsettled() (all []Unsettled) {
	c.mu.Lock()
	found := make(map[volumeID]Unsettled, len(c.unsettled))
	for id, v := range c.unsettled {
		found[id] = v
	}
	c.mu.Unlock()
	for id, v := range found {
		if !c.inUse.isWanted(id) { // else a pod has come to want it, which is looked at with the next try
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b Unsettled) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Handle, b.Handle))
	})
	return all
}

// notSettled keeps why a volume could not be settled.
func (c *Volumes) notSettled(id volumeID, why error, since, retry time.Time) {
	v := Unsettled{
		Plugin: strings.TrimSuffix(uniquePrefix, "/"), Driver: id.driver, Handle: id.handle,
		Why: shortened(why.Error()), Advice: unsettledAdvice(why), Since: since, Retry: retry,
	}
	if id.driver == "" {
		if kind, rest, has := strings.Cut(strings.TrimPrefix(id.handle, "kubernetes.io/"), "/"); has {
			v.Plugin, v.Handle = "kubernetes.io/"+kind, rest
		}
	} else {
		v.Path, v.PV = c.stagedAt(id)
		v.Device = v.PV != ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsettled[id] = v
}

// mostOfAWhy is how long a text may be that is kept, which has a driver's own words in it.
const mostOfAWhy = 4 << 10

// shortened is a text that can be kept and sent.
func shortened(text string) string {
	if len(text) > mostOfAWhy {
		text = text[:mostOfAWhy] + " …"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// isSettled forgets it.
func (c *Volumes) isSettled(id volumeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsettled, id)
}

// stagedAt is where a volume is staged by what is on the disk; pv: as the device of that one.
func (c *Volumes) stagedAt(id volumeID) (path, pv string) {
	if dir := c.stagingDir(id); !removedAlready(dir) {
		return filepath.Join(dir, globalMount), ""
	}
	known, _, _ := c.deviceData()
	for name, of := range known {
		if of == id && (pv == "" || name < pv) { // always the same of several
			path, pv = c.blockPlaces(name, "").staging, name
		}
	}
	return path, pv
}

// unsettledAdvice is what to do about a volume that cannot be settled.
func unsettledAdvice(why error) string {
	switch podstate.VolumeCauseOf(why) {
	case podstate.VolumeDriverAway:
		return "start the driver of the volume on this node: it has not registered itself; the volume is unstaged as soon as it does"
	case podstate.VolumeDriverSilent, podstate.VolumeDriverRefused:
		return "look at the log of the volume's driver on this node, and whether a process has the volume open; the driver is asked again"
	default:
		return "put right on this node what the error says; it is tried again"
	}
}
