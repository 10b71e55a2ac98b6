package podsync

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/uds"
	"github.com/polylet/polylet/services/podsync/internal/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/event"
	"github.com/polylet/polylet/services/podsync/internal/view"
)

// cgroups is the Manager that is made when the runtime has said how it names
// cgroups; until then, what needs it waits.
type cgroups struct {
	ready chan struct{}
	once  sync.Once
	made  cgroup.Manager
}

func newCgroups() *cgroups { return &cgroups{ready: make(chan struct{})} }

func (c *cgroups) set(m cgroup.Manager) {
	c.once.Do(func() {
		c.made = m
		close(c.ready)
	})
}

func (c *cgroups) get(ctx context.Context) (cgroup.Manager, error) {
	select {
	case <-c.ready:
		return c.made, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the node's cgroups: %w", ctx.Err())
	}
}

func (c *cgroups) Setup(ctx context.Context, limits cgroup.Limits) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return m.Setup(ctx, limits)
}

func (c *cgroups) Ensure(ctx context.Context, pod *v1.Pod) (string, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	return m.Ensure(ctx, pod)
}

func (c *cgroups) Remove(ctx context.Context, uid types.UID) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return m.Remove(ctx, uid)
}

// List is empty before the Manager is made.
func (c *cgroups) List() ([]types.UID, error) {
	select {
	case <-c.ready:
		return c.made.List()
	default:
		return nil, nil
	}
}

// setUpCgroups makes the node's cgroups once the runtime answers, with the
// driver that it names. It says whether they stand.
func (s *Service) setUpCgroups(ctx context.Context) bool {
	late, ok := s.cgroups.(*cgroups)
	if !ok {
		return true
	}
	select {
	case <-late.ready:
		return true
	default:
	}
	driver := cgroup.Driver(s.cfg.CgroupDriver)
	if answer, err := s.runtime.RuntimeConfig(ctx); err == nil && answer.GetLinux() != nil {
		driver = cgroup.Cgroupfs
		if answer.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
			driver = cgroup.Systemd
		}
	}
	m, err := cgroup.New(cgroup.Config{
		Root: s.cfg.CgroupRoot, Driver: driver, EnforcePods: s.cfg.EnforcePods, PodPidsLimit: s.cfg.PodPidsLimit,
		CPUCFSQuota: s.cfg.CPUCFSQuota, CPUCFSQuotaPeriodMicros: uint64(s.cfg.CPUCFSQuotaPeriod.Microseconds()),
	})
	if err == nil {
		m = cgroup.Counted(m, s.metrics)
		err = m.Setup(ctx, s.limits())
	}
	if err != nil {
		s.deps.Health.Set("cgroups", false, fmt.Sprintf("%v; check cgroupRoot and cgroupDriver", err))
		return false
	}
	logr.FromContextOrDiscard(ctx).Info("Cgroups stand", "root", s.cfg.CgroupRoot, "driver", driver)
	s.deps.Health.Set("cgroups", true, "")
	late.set(m)
	return true
}

// limits are what all pods together may use.
func (s *Service) limits() cgroup.Limits {
	if !s.cfg.EnforcePods {
		return cgroup.Limits{}
	}
	capacity := s.capacity()
	limits := cgroup.Limits{
		MilliCPU:    capacity.Cpu().MilliValue() - s.cfg.ReservedMilliCPU,
		MemoryBytes: capacity.Memory().Value() - s.cfg.ReservedMemoryBytes,
	}
	if s.cfg.ReservedPIDs > 0 {
		if most, err := readNumber("/proc/sys/kernel/pid_max"); err == nil {
			limits.PIDs = most - s.cfg.ReservedPIDs
		}
	}
	return limits
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

// shownVolumes are the volumes, of which other services are told.
type shownVolumes struct{ s *Service }

func (v shownVolumes) Setup(ctx context.Context, pod *v1.Pod) error {
	err := v.s.volumes.Setup(ctx, pod)
	rows := view.Volumes{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
	for _, i := range v.s.volumes.Volumes(pod.UID) {
		rows.Volumes = append(rows.Volumes, view.Volume{
			Name: i.Name, HostPath: i.HostPath, Ephemeral: i.Ephemeral, InMemory: i.InMemory, PVC: i.PVCName,
		})
	}
	v.s.table.SetVolumes(rows)
	return err
}

func (v shownVolumes) Teardown(ctx context.Context, uid types.UID) error {
	v.s.table.SetVolumes(view.Volumes{UID: uid})
	return v.s.volumes.Teardown(ctx, uid)
}

// RemovePodDir gives the pod's ids back too: with the directory the note that
// they are taken is gone, and nothing of the pod runs any more.
func (v shownVolumes) RemovePodDir(uid types.UID) error {
	err := v.s.volumes.RemovePodDir(uid)
	if err == nil {
		v.s.users.Release(uid)
	}
	return err
}

func (s *Service) logPath(pod *v1.Pod, container string, restartCount int32) string {
	dir := pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
	return filepath.Join(s.cfg.PodLogsDir, dir, container, strconv.Itoa(int(restartCount))+".log")
}

// recorder gives the events of the configuration builder to the Recorder.
type recorder struct{ events *event.Recorder }

func (r recorder) Event(object runtime.Object, eventType, reason, message string) {
	if pod, ok := object.(*v1.Pod); ok {
		r.events.Pod(pod, eventType, reason, message)
	}
}

func (r recorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

func (r recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// servePods serves Kubernetes' Pods API on its own socket.
func (s *Service) servePods(ctx context.Context) error {
	listener, err := uds.Listen(s.cfg.PodsAPISocket, "")
	if err != nil {
		return err
	}
	srv := rpc.NewServer(rpc.ServerConfig{Log: logr.FromContextOrDiscard(ctx), Stopping: ctx})
	s.server.RegisterPods(srv)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	return srv.Serve(listener)
}
