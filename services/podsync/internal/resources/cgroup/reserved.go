package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/systemd"

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
	at, unit, err := t.place(r.Cgroup)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if at != r.Cgroup {
		what += ", which is " + at
	}
	m, err := t.existing(at, unit)
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

// errPath says of which form the path of a cgroup has to be.
var errPath = errors.New("it must be an absolute path in its shortest form, and not the root")

// place is where a cgroup that the configuration names lies, and its unit where it is a slice of
// systemd's. With the systemd driver a kubelet takes the last element as the name of a slice,
// with or without .slice, and each dash in it is a level: /runtime is /runtime.slice, and
// /kube-reserved /kube.slice/kube-reserved.slice. What lies at the path as it is written is
// taken where there is no such slice.
// Source: https://www.freedesktop.org/software/systemd/man/latest/systemd.slice.html
func (t *tree) place(configured string) (at, unit string, err error) {
	literal := path.Clean("/" + configured)
	if literal == "/" {
		return "", "", errPath
	}
	if t.cfg.Driver != Systemd {
		if literal != configured {
			return "", "", errPath
		}
		return configured, "", nil
	}
	unit = strings.TrimSuffix(path.Base(literal), slice) + slice
	at, err = systemd.ExpandSlice(unit)
	isSlice := err == nil && at != "/"
	if isSlice && (at == literal || t.there(at) || !t.there(literal)) {
		return at, unit, nil
	}
	if t.there(literal) {
		return literal, "", nil
	}
	return "", "", fmt.Errorf("its last element names no slice of systemd, as system.slice does, and there is no such cgroup")
}

// there says whether a cgroup exists in any hierarchy.
func (t *tree) there(at string) bool {
	paths, err := t.below(at)
	return err == nil && slices.ContainsFunc(slices.Collect(maps.Values(paths)), cgroups.PathExists)
}

// below is where a cgroup lies in each hierarchy.
func (t *tree) below(at string) (map[string]string, error) {
	bases, err := t.bases()
	if err != nil {
		return nil, err
	}
	paths := make(map[string]string, len(bases))
	for controller, base := range bases {
		paths[controller] = filepath.Join(base, at)
	}
	return paths, nil
}

// existing is the handle of a cgroup by its path, whatever its name is made of.
func (t *tree) existing(at, unit string) (cgroups.Manager, error) {
	paths, err := t.below(at)
	if err != nil {
		return nil, err
	}
	config := &cgroups.Cgroup{Path: at, Resources: &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}}
	if unit != "" {
		// systemd would undo what is written behind its back.
		config.Systemd, config.Path = true, ""
		config.Parent, config.Name = "-"+slice, unit
	}
	return t.handle(config, paths)
}
