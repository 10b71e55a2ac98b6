package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/polylet/polylet/services/stats/internal/process"
)

// unlinkedTime is how long all open files of all containers may be looked at.
const unlinkedTime = 2 * time.Second

// Unlinked are files of a container that it holds open and that have no name any more.
type Unlinked struct {
	PodUID, Container string
	// Root lie on the filesystem of the root directory, Layer in the container's
	// writable layer.
	Root, Layer Files
	// Largest is what the largest of them was called.
	Largest string
}

// Files is how many there are and what lies in them.
type Files struct{ Bytes, Count uint64 }

func (f *Files) add(bytes uint64) { f.Bytes, f.Count = f.Bytes+bytes, f.Count+1 }

// Unlinked finds them in all containers; a file that several hold open counts for the
// first. False: the time was over before all were looked at.
func (c *Collector) Unlinked(parent context.Context) (out []Unlinked, all bool, err error) {
	ctx, cancel := context.WithTimeout(parent, unlinkedTime)
	defer cancel()
	root, err := process.DeviceOf(c.cfg.RootDir)
	if err != nil {
		return nil, false, fmt.Errorf("look at %s: %w", c.cfg.RootDir, err)
	}
	containers, err := c.deps.Meter.Processes()
	if err != nil {
		return nil, false, fmt.Errorf("list the containers' processes: %w", err)
	}
	seen, all := map[process.Inode]bool{}, true
	for _, k := range containers {
		u, largest := Unlinked{PodUID: k.Pod.UID, Container: k.Container}, uint64(0)
		for _, pid := range k.PIDs {
			all = c.deps.Proc.Unlinked(ctx, pid, func(f process.Unlinked) {
				switch {
				case seen[f.Inode]:
					return
				case f.Inode.Device == root:
					u.Root.add(f.Bytes)
				case f.Root:
					u.Layer.add(f.Bytes)
				default:
					return // It lies on another volume.
				}
				seen[f.Inode] = true
				if f.Bytes >= largest {
					largest, u.Largest = f.Bytes, f.Path
				}
			}) && all
		}
		if len(u.Largest) > 0 {
			out = append(out, u)
		}
	}
	return out, all, nil
}
