package cgroup

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/opencontainers/cgroups"

	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// ErrReserved says that the pods' cgroups stand, and that one of others could
// not be limited to what is reserved for it.
var ErrReserved = errors.New("what is reserved is not enforced")

// reserve limits cgroups of others to what is kept for them. One that cannot be
// limited does not keep the others from it.
func (t *tree) reserve(list []Reserved) error {
	var errs []error
	for _, r := range list {
		if err := t.limit(r); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrReserved, errors.Join(errs...))
}

// limit writes the values of one reserved cgroup where they differ from what
// was written last.
func (t *tree) limit(r Reserved) error {
	what := fmt.Sprintf("enforce %s on cgroup %s", r.Kind, r.Cgroup)
	if !strings.HasPrefix(r.Cgroup, "/") || path.Clean(r.Cgroup) != r.Cgroup || r.Cgroup == "/" {
		return fmt.Errorf("%s: it must be an absolute path in its shortest form, and not the root", what)
	}
	m, err := t.existing(r.Cgroup)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !existsAny(m) {
		return fmt.Errorf("%s: there is no such cgroup; make it (with systemd, a slice with a process in it) or take %s out of enforceNodeAllocatable", what, r.Kind)
	}
	w := wanted{memory: r.MemoryBytes, pids: r.PIDs}
	if r.MilliCPU > 0 {
		w.shares = resources.Shares(r.MilliCPU)
	}
	if t.cfg.MemoryQoS.On && r.MemoryBytes > 0 { // What is reserved is protected, too.
		w.protected = map[string]int64{memoryMin: r.MemoryBytes}
	}
	text := fmt.Sprintf("%+v", w)
	t.mu.Lock()
	same := t.applied[r.Cgroup] == text
	t.mu.Unlock()
	if same {
		return nil
	}
	// It is somebody else's: what is not reserved is not touched.
	if err := m.Set(t.resources(m, w, false)); err != nil {
		return fmt.Errorf("%s: %w; if what runs in it uses more already, reserve more", what, err)
	}
	t.mu.Lock()
	t.applied[r.Cgroup] = text
	t.mu.Unlock()
	return nil
}

// existing is the handle of a cgroup by its path, whatever its name is made of.
func (t *tree) existing(at string) (cgroups.Manager, error) {
	bases, err := t.bases()
	if err != nil {
		return nil, err
	}
	paths := make(map[string]string, len(bases))
	for controller, base := range bases {
		paths[controller] = filepath.Join(base, at)
	}
	config := &cgroups.Cgroup{Path: at, Resources: &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}}
	if t.cfg.Driver == Systemd && strings.HasSuffix(at, slice) {
		// systemd would undo what is written behind its back.
		config.Systemd, config.Path = true, ""
		config.Parent, config.Name = "-"+slice, path.Base(at)
	}
	return t.handle(config, paths)
}
