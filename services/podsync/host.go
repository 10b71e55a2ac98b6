package podsync

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/uds"
	"github.com/polylet/polylet/services/podsync/internal/report/event"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
	"github.com/polylet/polylet/services/podsync/internal/resources/userns"
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

func (c *cgroups) ParentOf(ctx context.Context, pod *v1.Pod) (string, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	return m.ParentOf(ctx, pod)
}

func (c *cgroups) Ensure(ctx context.Context, pod *v1.Pod) (string, error) {
	m, err := c.get(ctx)
	if err != nil {
		return "", err
	}
	return m.Ensure(ctx, pod)
}

func (c *cgroups) Raise(ctx context.Context, pod *v1.Pod) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return m.Raise(ctx, pod)
}

func (c *cgroups) Fit(ctx context.Context, pod *v1.Pod) error {
	m, err := c.get(ctx)
	if err != nil {
		return err
	}
	return m.Fit(ctx, pod)
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

// shownVolumes are the volumes, of which other services are told.
type shownVolumes struct{ s *Service }

func (v shownVolumes) Setup(ctx context.Context, pod *v1.Pod) error {
	err := v.s.volumes.Setup(ctx, pod)
	rows := podcache.Volumes{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
	for _, i := range v.s.volumes.Volumes(pod.UID) {
		rows.Volumes = append(rows.Volumes, podcache.Volume{
			Name: i.Name, HostPath: i.HostPath, Ephemeral: i.Ephemeral, InMemory: i.InMemory, PVC: i.PVCName,
		})
	}
	v.s.table.SetVolumes(rows)
	return err
}

func (v shownVolumes) Teardown(ctx context.Context, uid types.UID) error {
	v.s.table.SetVolumes(podcache.Volumes{UID: uid})
	return v.s.volumes.Teardown(ctx, uid)
}

// Standing implements execute.Volumes.
func (v shownVolumes) Standing(uid types.UID) []string { return v.s.volumes.Standing(uid) }

// RemovePodDir implements execute.Volumes.
func (v shownVolumes) RemovePodDir(uid types.UID) error { return v.s.volumes.RemovePodDir(uid) }

// endedCgroups are the cgroups, with which a pod that has ended gives back its
// ids: nothing of it runs any more when its cgroup goes, though its object may
// stay for days.
type endedCgroups struct {
	cgroup.Manager
	users *userns.Allocator
}

// Remove implements execute.Cgroups.
func (c endedCgroups) Remove(ctx context.Context, uid types.UID) error {
	if err := c.Manager.Remove(ctx, uid); err != nil {
		return err
	}
	return c.users.Release(uid)
}

func (s *Service) logPath(pod *v1.Pod, container string, restartCount int32) string {
	dir := pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
	return filepath.Join(s.cfg.PodLogsDir, dir, container, strconv.Itoa(int(restartCount))+".log")
}

// recorder gives the events of the configuration builder to the Recorder.
type recorder struct{ events *event.Recorder }

func (r recorder) Event(object runtime.Object, eventType, reason, message string) {
	switch object := object.(type) {
	case *v1.Pod:
		r.events.Pod(object, eventType, reason, message)
	case *v1.Node: // there is one only
		r.events.Node(eventType, reason, message)
	}
}

func (r recorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

func (r recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

// servePods serves Kubernetes' Pods API on its own socket, which root may open:
// its clients are agents in pods with a hostPath, as KEP-4188 has it.
func (s *Service) servePods(ctx context.Context) error {
	listener := s.listenForPods(ctx)
	if listener == nil {
		return nil
	}
	srv := rpc.NewServer(rpc.ServerConfig{Log: logr.FromContextOrDiscard(ctx), Stopping: ctx, Public: true})
	s.server.RegisterPods(srv)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	return srv.Serve(listener)
}

// listenForPods returns nil when ctx ends. Where the socket cannot be made, on a
// disk that became read-only above all, only those do without who ask there: that
// is said, and tried again.
func (s *Service) listenForPods(ctx context.Context) net.Listener {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second})
	for {
		listener, err := uds.Listen(s.cfg.PodsAPISocket, "")
		if err == nil {
			s.deps.Health.Set("pods API", true, "")
			return listener
		}
		s.deps.Health.Set("pods API", false, fmt.Sprintf("nobody can ask it: %v; it is tried again", err))
		if retry.Wait(ctx) != nil {
			return nil
		}
	}
}
