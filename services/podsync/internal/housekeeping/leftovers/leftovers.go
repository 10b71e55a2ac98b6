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

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
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
	log := logr.FromContextOrDiscard(ctx)
	var uids []types.UID
	look := func(where string, list func() ([]types.UID, error)) {
		found, err := list()
		if err != nil {
			log.Error(err, "Could not list the "+where+" of pods; what is left of pods that are gone stays")
		}
		for _, uid := range found {
			if !slices.Contains(uids, uid) {
				uids = append(uids, uid)
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

// withLogs lists the pods that have a directory of logs, <namespace>_<name>_<uid>.
func withLogs(dir string) ([]types.UID, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var uids []types.UID
	for _, e := range entries {
		if parts := strings.Split(e.Name(), "_"); e.IsDir() && len(parts) == 3 && parts[2] != "" {
			uids = append(uids, types.UID(parts[2]))
		}
	}
	return uids, err
}
