// Package leftovers finds the pods that have something on the node beside the
// runtime: a directory, logs or a cgroup. What is left of pods that are gone is
// removed by whoever asked.
//
// It owns where to look. It must never remove anything.
package leftovers

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Volumes knows the pods that have a directory; *volume.Set has it.
type Volumes interface {
	OnDisk() ([]types.UID, error)
}

// Cgroups knows the pods that have a cgroup; a cgroup.Manager has it.
type Cgroups interface {
	List() ([]types.UID, error)
}

// Finder looks. Safe for concurrent use.
type Finder struct {
	// LogsDir holds the pods' logs.
	LogsDir string
	Volumes Volumes
	Cgroups Cgroups
	// Stand waits until the node's cgroups do; nil: nobody makes them later.
	Stand func(context.Context) error
}

// Find lists the pods. It waits for the cgroups, and without them lists the others.
func (f Finder) Find(ctx context.Context) []types.UID {
	log := klog.FromContext(ctx)
	var uids []types.UID
	known := map[types.UID]bool{} // as systemd's slices spell them
	look := func(where string, list func() ([]types.UID, error)) {
		found, err := list()
		if err != nil {
			log.Error(err, "Could not list the "+where+" of pods; what is left of pods that are gone stays")
		}
		for _, uid := range found {
			if !slices.Contains(uids, uid) && !(where == "cgroups" && known[uid]) {
				uids = append(uids, uid)
				known[asSlice(uid)] = true
			}
		}
	}
	look("directories", f.Volumes.OnDisk)
	look("logs", func() ([]types.UID, error) { return withLogs(f.LogsDir) })
	if f.Stand != nil && f.Stand(ctx) != nil {
		return uids
	}
	look("cgroups", f.Cgroups.List)
	return uids
}

// asSlice is a pod's UID as it is read from the name of a slice of systemd, in which a dash
// has a meaning of its own: one with an underscore, which a manifest may have, looks like
// another that nobody knows, and its cgroup must not be removed as that one's.
func asSlice(uid types.UID) types.UID {
	return types.UID(strings.ReplaceAll(string(uid), "_", "-"))
}

// withLogs lists the pods that have a directory of logs, <namespace>_<name>_<uid>.
func withLogs(dir string) ([]types.UID, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var uids []types.UID
	for _, e := range entries {
		if parts := strings.SplitN(e.Name(), "_", 3); e.IsDir() && len(parts) == 3 && parts[2] != "" {
			uids = append(uids, types.UID(parts[2]))
		}
	}
	return uids, err
}
