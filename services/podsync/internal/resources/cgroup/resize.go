package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// Raise makes the pod's cgroup as large as it is or is to be, whichever is more.
func (t *tree) Raise(_ context.Context, pod *v1.Pod) error {
	n, err := t.pod(podutil.QOS(pod), pod.UID)
	if err != nil {
		return err
	}
	m, err := t.open(n)
	if err != nil {
		return err
	}
	w := t.wanted(pod)
	if existsAny(m) {
		have, err := t.read(m)
		if err != nil {
			return fmt.Errorf("read cgroup %s: %w", n.path(), err)
		}
		w = w.raise(have)
	}
	return t.write(n, w)
}

// Fit makes the pod's cgroup what it is to be.
func (t *tree) Fit(ctx context.Context, pod *v1.Pod) error {
	n, err := t.pod(podutil.QOS(pod), pod.UID)
	if err != nil {
		return err
	}
	w := t.wanted(pod)
	if _, used, err := t.short(n, w); err != nil {
		return err
	} else if used > 0 {
		return fmt.Errorf("cannot decrease memory limits: attempting to set pod memory limit (%d) below current usage (%d)", w.memory, used)
	}
	_, err = t.Ensure(ctx, pod)
	return err
}

// short says whether a cgroup that exists uses more memory than it would have:
// what it has, zero for no limit, and how much is in use; zero when it would not
// come short.
func (t *tree) short(n name, w wanted) (have, used int64, err error) {
	m, err := t.open(n)
	if err != nil {
		return 0, 0, err
	}
	if w.memory <= 0 || !existsAny(m) || !t.has(m, "memory") {
		return 0, 0, nil
	}
	now, err := t.read(m)
	if err != nil {
		return 0, 0, fmt.Errorf("read cgroup %s: %w", n.path(), err)
	}
	if now.memory > 0 && now.memory <= w.memory {
		return 0, 0, nil
	}
	used, err = t.number(m, "memory", "memory.usage_in_bytes", "memory.current")
	if err != nil {
		return 0, 0, fmt.Errorf("read cgroup %s: %w", n.path(), err)
	}
	if used < w.memory {
		return 0, 0, nil
	}
	return now.memory, used, nil
}

// raise is w where it is more than have, and have elsewhere; no limit is most.
func (w wanted) raise(have wanted) wanted {
	w.shares = max(w.shares, have.shares)
	if w.memory > 0 && (have.memory <= 0 || have.memory > w.memory) {
		w.memory = have.memory
	}
	// Quotas of different periods compare as parts of a cpu.
	if w.quota > 0 && (have.quota <= 0 || have.quota*int64(w.period) > w.quota*int64(have.period)) {
		w.quota, w.period = have.quota, have.period
	}
	return w
}

// unlimited is from where on v1 means none: it shows the largest page-aligned number.
const unlimited = int64(1) << 62

// read gets the values that a resize changes from the kernel.
func (t *tree) read(m cgroups.Manager) (wanted, error) {
	var w wanted
	if t.has(m, "memory") {
		limit, err := t.number(m, "memory", "memory.limit_in_bytes", "memory.max")
		if err != nil {
			return w, err
		}
		if limit < unlimited {
			w.memory = limit
		}
	}
	if !t.has(m, "cpu") {
		return w, nil
	}
	shares, err := t.number(m, "cpu", "cpu.shares", "cpu.weight")
	if err != nil {
		return w, err
	}
	w.shares = uint64(max(shares, 0))
	if t.unified {
		w.shares = sharesOf(w.shares)
	}
	w.quota, w.period, err = t.quota(m)
	return w, err
}

// quota reads the cpu quota; zero for none.
func (t *tree) quota(m cgroups.Manager) (int64, uint64, error) {
	if !t.unified {
		quota, err := t.number(m, "cpu", "cpu.cfs_quota_us", "")
		if errors.Is(err, os.ErrNotExist) {
			return 0, 0, nil // a kernel without quotas
		}
		if err != nil || quota <= 0 {
			return 0, 0, err
		}
		period, err := t.number(m, "cpu", "cpu.cfs_period_us", "")
		return quota, uint64(max(period, 1)), err
	}
	raw, err := os.ReadFile(filepath.Join(m.Path(""), "cpu.max"))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(raw))
	if len(fields) != 2 || fields[0] == "max" {
		return 0, 0, nil
	}
	quota, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("cpu.max: %w", err)
	}
	period, err := strconv.ParseUint(fields[1], 10, 64)
	return quota, max(period, 1), err
}

// number reads a file of one number, by its name on v1 or v2; max is zero.
func (t *tree) number(m cgroups.Manager, controller, v1name, v2name string) (int64, error) {
	file := filepath.Join(m.Path(controller), v1name)
	if t.unified {
		file = filepath.Join(m.Path(""), v2name)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(raw))
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}
