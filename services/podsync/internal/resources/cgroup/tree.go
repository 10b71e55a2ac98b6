package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
)

// removeTimeout bounds Remove when its context has no deadline.
const removeTimeout = 10 * time.Second

// tree is the Manager on real cgroups.
type tree struct {
	cfg Config
	// controllers that can be used on cgroup v2; nil on v1, where each has a path or not.
	unified     bool
	controllers []string

	// bases are the hierarchies' directories by controller (cgroupfs driver).
	bases func() (map[string]string, error)

	// make makes the cgroup of a handle.
	make func(cgroups.Manager) error

	// sharing lets one update of the burstable tier's shares run at a time.
	sharing chan struct{}

	mu      sync.Mutex
	applied map[string]string    // cgroup -> what was last written, for people and for comparison
	burst   map[types.UID]uint64 // shares of the pods in the burstable tier
	// burstable is what their tier has beside shares.
	burstable wanted
}

// New makes the Manager for this machine; it changes no cgroup.
func New(cfg Config) (Manager, error) {
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	if !strings.HasPrefix(cfg.Root, "/") || path.Clean(cfg.Root) != cfg.Root {
		return nil, fmt.Errorf("cgroupRoot %q must be an absolute path in its shortest form", cfg.Root)
	}
	t := &tree{cfg: cfg, make: func(m cgroups.Manager) error { return m.Apply(-1) }, sharing: make(chan struct{}, 1), applied: map[string]string{}, burst: map[types.UID]uint64{}, burstable: wanted{keepsMemory: true}}
	t.bases = sync.OnceValues(func() (map[string]string, error) {
		m, err := manager.New(&cgroups.Cgroup{Path: "/", Resources: &cgroups.Resources{SkipDevices: true}})
		if err != nil {
			return nil, fmt.Errorf("look for the cgroup hierarchies: %w", err)
		}
		return m.GetPaths(), nil
	})
	switch cfg.Driver {
	case Cgroupfs:
	case Systemd:
		if !systemd.IsRunningSystemd() {
			return nil, fmt.Errorf("cgroupDriver is systemd, but systemd does not run here; set cgroupDriver: cgroupfs")
		}
	default:
		return nil, fmt.Errorf("unknown cgroupDriver %q; use cgroupfs or systemd", cfg.Driver)
	}
	if cgroups.IsCgroup2UnifiedMode() {
		raw, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		if err != nil {
			return nil, fmt.Errorf("look for cgroup controllers: %w", err)
		}
		t.unified, t.controllers = true, strings.Fields(string(raw))
	}
	return t, nil
}

// open is the library's handle of one cgroup; nothing is made yet.
func (t *tree) open(n name) (cgroups.Manager, error) {
	config := &cgroups.Cgroup{Resources: &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}}
	var paths map[string]string
	if t.cfg.Driver == Systemd {
		config.Systemd = true
		config.Parent, config.Name = n.slices()
	} else {
		config.Path = n.path()
		// Looking for the hierarchies each time costs more than all the rest.
		var err error
		if paths, err = t.below(n.path()); err != nil {
			return nil, err
		}
	}
	m, err := t.handle(config, paths)
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", n.path(), err)
	}
	return m, nil
}

// handle makes the library's handle; on cgroup v2 a test may have its own root.
func (t *tree) handle(config *cgroups.Cgroup, paths map[string]string) (cgroups.Manager, error) {
	if t.unified && t.cfg.Driver == Cgroupfs {
		return fs2.NewManager(config, paths[""])
	}
	return manager.NewWithPaths(config, paths)
}

// Setup makes kubepods and the tiers. A limit of memory never falls below what is in
// use, for which pods would be killed: it is ErrInUse then.
func (t *tree) Setup(_ context.Context, limits Limits) error {
	w := wanted{}
	if limits.MilliCPU > 0 {
		w.shares = resources.Shares(limits.MilliCPU)
	}
	if t.cfg.EnforcePods {
		w.memory, w.pids, w.huge = limits.MemoryBytes, limits.PIDs, map[string]int64{}
		for bytes, limit := range limits.HugePages {
			w.huge[resources.PageSizeName(bytes)] = limit
		}
	}
	if t.cfg.MemoryQoS.On && limits.Tiers != nil {
		w.protected = map[string]int64{memoryMin: limits.Tiers.Min} // Also to nothing, for an earlier run.
	}
	var inUse, err error
	if w.memory, err = t.bearable(t.kubepods(), w.memory); errors.Is(err, ErrInUse) {
		inUse = err
	} else if err != nil {
		return err
	}
	if err := t.write(t.kubepods(), w); err != nil {
		return err
	}
	if err := t.readBurst(); err != nil {
		return err
	}
	tiers := t.setTiers(limits.Tiers)
	if tiers != nil && !errors.Is(tiers, ErrInUse) {
		return tiers
	}
	return errors.Join(inUse, tiers, t.reserve(limits.Reserved))
}

// wanted are the values of a pod's cgroup.
func (t *tree) wanted(pod *v1.Pod) wanted {
	total := resources.ForPod(pod)
	w := wanted{shares: resources.Shares(total.MilliCPU), memory: total.MemoryLimit, huge: map[string]int64{}}
	if t.cfg.CPUCFSQuota && total.CPULimit > 0 {
		w.period = t.cfg.CPUCFSQuotaPeriodMicros
		if w.period == 0 {
			w.period = 100_000
		}
		w.quota = resources.Quota(total.CPULimit, w.period)
	}
	if t.cfg.PodPidsLimit > 0 {
		w.pids = t.cfg.PodPidsLimit
	}
	if t.cfg.MemoryQoS.On {
		minimum, low := t.cfg.MemoryQoS.Pod(pod)
		w.protected = map[string]int64{memoryMin: minimum, memoryLow: low}
	}
	for _, size := range cgroups.HugePageSizes() {
		w.huge[size] = total.HugePages[size]
	}
	return w
}

// ParentOf names the pod's cgroup.
func (t *tree) ParentOf(_ context.Context, pod *v1.Pod) (string, error) {
	n, err := t.pod(podutil.QOS(pod), pod.UID)
	if err != nil {
		return "", err
	}
	return n.parent(t.cfg.Driver), nil
}

// Ensure makes or updates the pod's cgroup.
func (t *tree) Ensure(_ context.Context, pod *v1.Pod) (string, error) {
	n, err := t.pod(podutil.QOS(pod), pod.UID)
	if err != nil {
		return "", err
	}
	w := t.wanted(pod)
	have, used, err := t.short(n, w)
	if err != nil {
		return "", err
	}
	if used > 0 {
		w.memory = have
	}
	if err := t.write(n, w); err != nil {
		return "", err
	}
	if podutil.QOS(pod) == v1.PodQOSBurstable {
		t.mu.Lock()
		t.burst[pod.UID] = w.shares
		t.mu.Unlock()
		if err := t.share(); err != nil {
			return "", err
		}
	}
	return n.parent(t.cfg.Driver), nil
}

// Remove kills what is left in the pod's cgroup and removes it.
func (t *tree) Remove(ctx context.Context, uid types.UID) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, removeTimeout)
		defer cancel()
	}
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		n, err := t.pod(class, uid)
		if err != nil {
			return err
		}
		if err := t.remove(ctx, n); err != nil {
			return err
		}
	}
	t.mu.Lock()
	_, burst := t.burst[uid]
	delete(t.burst, uid)
	t.mu.Unlock()
	if burst {
		return t.share()
	}
	return nil
}

// remove removes one cgroup with all below it. A cgroup with dying processes
// is busy until the kernel has buried them, and nothing tells when on v1, so
// removal is tried again with growing pauses.
func (t *tree) remove(ctx context.Context, n name) error {
	m, err := t.open(n)
	if err != nil {
		return err
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		if t.empty(m) || !existsAny(m) {
			break
		}
		killed := kill(m)
		err := m.Destroy()
		if err == nil {
			klog.FromContext(ctx).V(2).Info("Removed a pod's cgroup", "cgroup", n.path(), "killed", killed)
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: %w (%w); it is tried again", n.path(), err, context.Cause(ctx))
		case <-time.After(pause):
		}
		if m, err = t.open(n); err != nil { // Destroy forgets the paths it removed
			return err
		}
	}
	t.mu.Lock()
	delete(t.applied, n.path())
	t.mu.Unlock()
	return nil
}

// empty removes a cgroup in which nothing is, as it mostly is by then, and says
// whether that was all. It spares the search for processes in every hierarchy.
func (t *tree) empty(m cgroups.Manager) bool {
	if t.cfg.Driver != Cgroupfs {
		return false // systemd wants to be told
	}
	for _, dir := range m.GetPaths() {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return false
		}
	}
	return true
}

// existsAny says whether the cgroup is there in any hierarchy.
func existsAny(m cgroups.Manager) bool {
	for _, p := range m.GetPaths() {
		if cgroups.PathExists(p) {
			return true
		}
	}
	return false
}

// List names the pods that have a cgroup in any hierarchy.
func (t *tree) List() ([]types.UID, error) {
	found := map[types.UID]bool{}
	for _, tier := range []name{t.kubepods(), t.tier(v1.PodQOSBurstable), t.tier(v1.PodQOSBestEffort)} {
		m, err := t.open(tier)
		if err != nil {
			return nil, err
		}
		for _, dir := range m.GetPaths() {
			entries, err := os.ReadDir(dir)
			if err != nil && !os.IsNotExist(err) {
				return nil, fmt.Errorf("list the pods' cgroups: %w", err)
			}
			for _, e := range entries {
				if uid, ok := t.podOf(e.Name()); ok && e.IsDir() {
					found[uid] = true
				}
			}
		}
	}
	uids := make([]types.UID, 0, len(found))
	for uid := range found {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids, nil
}
