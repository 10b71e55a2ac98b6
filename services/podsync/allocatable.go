package podsync

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// setUpCgroups makes the node's cgroups once the runtime answers, with the
// driver that it names, and brings their limits up to date whenever what the
// node has changes. It says whether they stand as they should.
func (s *Service) setUpCgroups(ctx context.Context) bool {
	late, ok := s.cgroups.(*cgroups)
	if !ok {
		return true
	}
	limits := s.limits()
	if s.enforced != nil && reflect.DeepEqual(*s.enforced, limits) {
		return true
	}
	m, driver, err := s.cgroupManager(ctx)
	if err == nil {
		err = m.Setup(ctx, limits)
	}
	if err != nil {
		message := fmt.Sprintf("%v; check cgroupRoot, cgroupDriver and enforceNodeAllocatable", err)
		s.deps.Health.Set("cgroups", false, message)
		if s.notEnforced != message && s.enforces() {
			s.notEnforced = message
			s.events.Node(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", fmt.Sprintf("Failed to update Node Allocatable Limits %q: %v", s.cfg.CgroupRoot, err))
		}
		if errors.Is(err, cgroup.ErrReserved) { // the pods' own cgroups stand
			late.set(m)
		}
		return false
	}
	logr.FromContextOrDiscard(ctx).Info("Cgroups stand", "root", s.cfg.CgroupRoot, "driver", driver, "limits", fmt.Sprintf("%+v", limits))
	s.deps.Health.Set("cgroups", true, "")
	s.enforced, s.notEnforced = &limits, ""
	s.sayEnforced(limits)
	late.set(m)
	return true
}

// cgroupManager is the Manager that stands, or a new one.
func (s *Service) cgroupManager(ctx context.Context) (cgroup.Manager, cgroup.Driver, error) {
	if s.madeCgroups != nil {
		return s.madeCgroups, s.cgroupDriver, nil
	}
	driver, err := s.askDriver(ctx)
	if err != nil {
		return nil, cgroup.Driver(s.cfg.CgroupDriver), err
	}
	s.cgroupDriver = driver
	m, err := cgroup.New(cgroup.Config{
		Root: s.cfg.CgroupRoot, Driver: s.cgroupDriver, EnforcePods: s.cfg.EnforcePods, PodPidsLimit: s.cfg.PodPidsLimit,
		CPUCFSQuota: s.cfg.CPUCFSQuota, CPUCFSQuotaPeriodMicros: uint64(s.cfg.CPUCFSQuotaPeriod.Microseconds()),
	})
	if err != nil {
		return nil, s.cgroupDriver, err
	}
	s.madeCgroups = cgroup.Counted(m, s.metrics)
	s.table.SetPodsCgroup(cgroup.PodsPath(s.cfg.CgroupRoot, s.cgroupDriver))
	return s.madeCgroups, s.cgroupDriver, nil
}

// askDriver is the runtime's cgroup driver; the configured one where the runtime
// does not know the question, which the kubelet of 1.37 will not put up with.
func (s *Service) askDriver(ctx context.Context) (cgroup.Driver, error) {
	answer, err := s.runtime.RuntimeConfig(ctx)
	switch {
	case cri.IsUnimplemented(err):
		s.metrics.LosesSupport("1.37.0")
		logr.FromContextOrDiscard(ctx).Info("The runtime does not say which cgroup driver it has, and should be updated; using cgroupDriver of the configuration", "driver", s.cfg.CgroupDriver)
	case err != nil:
		return "", fmt.Errorf("ask the runtime for its cgroup driver: %w", err)
	case answer.GetLinux() == nil:
	case answer.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
		return cgroup.Systemd, nil
	default:
		return cgroup.Cgroupfs, nil
	}
	return cgroup.Driver(s.cfg.CgroupDriver), nil
}

func (s *Service) enforces() bool { return s.cfg.EnforcePods || len(s.cfg.Enforced) > 0 }

// sayEnforced records what is limited now.
// Source: https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
func (s *Service) sayEnforced(limits cgroup.Limits) {
	if s.cfg.EnforcePods {
		s.events.Node(v1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
	}
	for _, r := range limits.Reserved {
		whose, _, _ := strings.Cut(r.Kind, "-")
		s.events.Node(v1.EventTypeNormal, "NodeAllocatableEnforced", fmt.Sprintf("Updated limits on %s reserved cgroup %s", whose, r.Cgroup))
	}
}

// limits are what all pods together may use: the machine without what is
// reserved (what eviction keeps free is not taken off), and what those may use
// for whom it is reserved.
func (s *Service) limits() cgroup.Limits {
	var limits cgroup.Limits
	for _, r := range s.cfg.Enforced {
		limits.Reserved = append(limits.Reserved, cgroup.Reserved(r))
	}
	if !s.cfg.EnforcePods {
		return limits
	}
	capacity := s.capacity()
	limits.MilliCPU = capacity.Cpu().MilliValue() - s.cfg.ReservedMilliCPU
	limits.MemoryBytes = capacity.Memory().Value() - s.cfg.ReservedMemoryBytes
	if most := mostProcesses(); most > 0 {
		limits.PIDs = most - s.cfg.ReservedPIDs
	}
	limits.HugePages = hugePages(capacity)
	return limits
}

// hugePages are the bytes of each page size, by size.
func hugePages(list v1.ResourceList) map[int64]int64 {
	out := map[int64]int64{}
	for name, q := range list {
		if text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
			if size, err := resource.ParseQuantity(text); err == nil {
				out[size.Value()] = q.Value()
			}
		}
	}
	return out
}

// mostProcesses is how many processes the kernel allows; zero when it does not say.
func mostProcesses() int64 {
	pids, err := readNumber("/proc/sys/kernel/pid_max")
	if err != nil {
		return 0
	}
	if threads, err := readNumber("/proc/sys/kernel/threads-max"); err == nil {
		return min(pids, threads)
	}
	return pids
}

func readNumber(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// memoryTotal is the machine's memory in bytes; zero when it cannot be read.
func memoryTotal() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}
