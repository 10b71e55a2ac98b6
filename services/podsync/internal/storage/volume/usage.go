package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// ErrNoUsage says that a driver does not say how full its volumes are.
var ErrNoUsage = errors.New("the driver does not say how full its volumes are")

// ErrNotDriven says that a pod has no such volume of a driver.
var ErrNotDriven = errors.New("no such volume of a driver is set up")

// Usage is what a driver says of a volume; what it does not say is zero.
type Usage struct {
	// Driver is its name.
	Driver string
	// Available, Capacity and Used are bytes.
	Available, Capacity, Used uint64
	// InodesFree, Inodes and InodesUsed are numbers.
	InodesFree, Inodes, InodesUsed uint64
	// Condition is nil when the driver says nothing of it.
	Condition *Condition
}

// Condition is how well a volume is.
type Condition struct {
	Abnormal bool
	// Message is the driver's.
	Message string
}

// driven says whether only a driver can measure a volume that is set up. Of devices
// nobody is asked.
func (st *podState) driven(v *v1.Volume) bool {
	b := st.bound[v.Name]
	return v.CSI != nil || b.Kind == claims.CSI && !b.Device
}

// Usage asks the driver of a volume how full it is. The error is ErrNotDriven or
// ErrNoUsage when nobody can be asked. A volume that is not well is told as an event of
// its pod.
func (s *Set) Usage(ctx context.Context, uid types.UID, name string) (Usage, error) {
	pod, dir, err := s.drivenDir(uid, name)
	if err != nil {
		return Usage{}, err
	}
	meter, can := s.deps.CSI.(Meter)
	if !can {
		return Usage{}, ErrNoUsage
	}
	usage, err := meter.Usage(ctx, dir)
	if err != nil {
		return Usage{}, fmt.Errorf("volume %q of pod %s/%s: %w", name, pod.Namespace, pod.Name, err)
	}
	if !s.cfg.Health {
		usage.Condition = nil
	}
	if c := usage.Condition; c != nil && c.Abnormal && s.deps.Events != nil {
		s.deps.Events.Pod(pod, v1.EventTypeWarning, "VolumeConditionAbnormal", fmt.Sprintf("Volume %s: %s", name, c.Message))
	}
	return usage, nil
}

// drivenDir is where a volume of a driver lies, and whose it is.
func (s *Set) drivenDir(uid types.UID, name string) (*v1.Pod, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.pods[uid]
	if st == nil || st.pod == nil || st.paths[name] == "" {
		return nil, "", ErrNotDriven
	}
	if v := podutil.Volume(st.pod, name); v != nil && st.driven(v) {
		return st.pod, filepath.Dir(st.paths[name]), nil
	}
	return nil, "", ErrNotDriven
}
