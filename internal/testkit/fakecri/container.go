package fakecri

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type container struct {
	r        *Runtime
	seq      int
	id, uniq string // uniq: the reserved name
	sandbox  *sandbox
	cfg      *runtimeapi.ContainerConfig
	imageID  string
	script   Script
	state    string
	starting bool // StartContainer is under way
	message  string

	createdAt, startedAt, finishedAt time.Time
	exitCode                         int32
	reason                           string
	resources                        *runtimeapi.LinuxContainerResources
	execs                            int
	proc                             *process
	log                              *logFile
}

// containerName is the name that is unique among containers of the whole runtime.
func containerName(m *runtimeapi.ContainerMetadata, s *runtimeapi.PodSandboxMetadata) string {
	return strings.Join([]string{m.GetName(), s.GetName(), s.GetNamespace(), s.GetUid(), fmt.Sprint(m.GetAttempt())}, "_")
}

func (c *container) name() string { return c.cfg.GetMetadata().GetName() }

func (c *container) info() ContainerInfo {
	return ContainerInfo{
		ID: c.id, SandboxID: c.sandbox.id, Config: c.cfg, Sandbox: c.sandbox.cfg, State: c.state,
		CreatedAt: c.createdAt, StartedAt: c.startedAt, FinishedAt: c.finishedAt,
		ExitCode: c.exitCode, Reason: c.reason, ImageID: c.imageID, Resources: c.resources,
	}
}

func (c *container) to(state, cause string, more Transition) {
	m := c.sandbox.cfg.GetMetadata()
	more.Kind, more.ID, more.SandboxID = KindContainer, c.id, c.sandbox.id
	more.PodUID, more.Namespace, more.Pod = m.GetUid(), m.GetNamespace(), m.GetName()
	more.Name, more.Attempt = c.name(), c.cfg.GetMetadata().GetAttempt()
	more.From, more.To, more.Cause, more.ExitCode = c.state, state, cause, c.exitCode
	c.state = state
	c.r.transitionLocked(more)
}

// CreateContainer needs a ready sandbox and an image that is present.
func (svc *runtimeService) CreateContainer(ctx context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r := svc.r
	cfg := req.GetConfig()
	if cfg.GetMetadata() == nil {
		return nil, status.Error(codes.Unknown, "container config must include metadata")
	}
	r.mu.Lock()
	s := r.findSandbox(req.GetPodSandboxId())
	if s == nil {
		r.mu.Unlock()
		return nil, status.Errorf(codes.NotFound, "failed to find sandbox id %q: not found", req.GetPodSandboxId())
	}
	uniq := containerName(cfg.GetMetadata(), s.cfg.GetMetadata())
	id, err := r.reserveLocked(r.containerNames, "container", uniq)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = r.wait(ctx, r.cfg.Latency["CreateContainer"])
	r.mu.Lock()
	defer r.mu.Unlock()
	var img *image
	if err == nil {
		img, err = r.checkCreate(s, cfg)
	}
	if err != nil {
		delete(r.containerNames, uniq)
		return nil, err
	}
	c := &container{
		r: r, seq: r.nextSeq(), id: id, uniq: uniq, sandbox: s, cfg: cfg, imageID: img.id, createdAt: time.Now(),
		resources: proto.CloneOf(cfg.GetLinux().GetResources()),
	}
	c.script = r.scriptFor(Process{Sandbox: s.cfg, Container: cfg, ImageRef: img.id, Attempt: cfg.GetMetadata().GetAttempt()})
	if r.cfg.WriteLogs && s.cfg.GetLogDirectory() != "" && cfg.GetLogPath() != "" {
		c.log = &logFile{path: c.logPath()}
	}
	r.containers[id] = c
	s.members = append(s.members, c)
	c.to(Created, "CreateContainer", Transition{})
	r.emitLocked(id, s, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

func (r *Runtime) checkCreate(s *sandbox, cfg *runtimeapi.ContainerConfig) (*image, error) {
	if s.state != Ready {
		return nil, status.Errorf(codes.NotFound, "failed to get sandbox container task: no running task found: task %s not found: not found", s.id)
	}
	img := r.findImageLocked(cfg.GetImage().GetImage())
	if img == nil {
		return nil, status.Errorf(codes.NotFound, "failed to resolve image %q: not found", cfg.GetImage().GetImage())
	}
	return img, nil
}

// RemoveContainer kills the container if it runs, then removes it. An unknown one is a
// success.
func (svc *runtimeService) RemoveContainer(ctx context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	if err := svc.r.wait(ctx, svc.r.cfg.Latency["RemoveContainer"]); err != nil {
		return nil, err
	}
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	c := svc.r.findContainer(req.GetContainerId())
	if c == nil {
		return &runtimeapi.RemoveContainerResponse{}, nil
	}
	if c.starting {
		return nil, status.Errorf(codes.Unknown, "failed to set removing state for container %q: container is in starting state, can't be removed", c.id)
	}
	if c.state == Running {
		c.exitLocked(137, "", "RemoveContainer", "KILL")
	}
	c.remove("RemoveContainer")
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (c *container) remove(cause string) {
	c.log.close()
	delete(c.r.containers, c.id)
	c.sandbox.members = slices.DeleteFunc(c.sandbox.members, func(other *container) bool { return other == c })
	delete(c.r.containerNames, c.uniq)
	c.to(Removed, cause, Transition{})
	c.r.emitLocked(c.id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// ListContainers lists containers, oldest first.
func (svc *runtimeService) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f := req.GetFilter()
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	resp := &runtimeapi.ListContainersResponse{}
	for _, c := range svc.r.containerList() {
		if f.GetState() != nil && f.GetState().GetState() != c.criState() || !idMatches(f.GetId(), c.id) ||
			!idMatches(f.GetPodSandboxId(), c.sandbox.id) || !labelsMatch(f.GetLabelSelector(), c.cfg.GetLabels()) {
			continue
		}
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.cfg.GetMetadata(), Image: c.cfg.GetImage(), ImageRef: c.imageID,
			ImageId: c.imageID, State: c.criState(), CreatedAt: c.createdAt.UnixNano(), Labels: c.cfg.GetLabels(), Annotations: c.cfg.GetAnnotations(),
		})
	}
	return resp, nil
}

// ContainerStatus describes one container.
func (svc *runtimeService) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	c := svc.r.findContainer(req.GetContainerId())
	if c == nil {
		return nil, containerNotFound(req.GetContainerId())
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: c.status()}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": "{}"}
	}
	return resp, nil
}

func containerNotFound(id string) error {
	return status.Errorf(codes.NotFound, "an error occurred when try to find container %q: not found", id)
}

func (c *container) criState() runtimeapi.ContainerState {
	switch c.state {
	case Created:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case Running:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case Exited:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

func (c *container) logPath() string {
	if c.sandbox.cfg.GetLogDirectory() == "" || c.cfg.GetLogPath() == "" {
		return ""
	}
	return filepath.Join(c.sandbox.cfg.GetLogDirectory(), c.cfg.GetLogPath())
}

func (c *container) status() *runtimeapi.ContainerStatus {
	st := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.cfg.GetMetadata(), State: c.criState(), CreatedAt: c.createdAt.UnixNano(),
		StartedAt: nanos(c.startedAt), FinishedAt: nanos(c.finishedAt), ExitCode: c.exitCode,
		Image: &runtimeapi.ImageSpec{Image: c.cfg.GetImage().GetImage()}, ImageRef: c.imageID, ImageId: c.imageID,
		Reason: c.reason, Message: c.message, Labels: c.cfg.GetLabels(), Annotations: c.cfg.GetAnnotations(),
		Mounts: c.cfg.GetMounts(), LogPath: c.logPath(), StopSignal: c.cfg.GetStopSignal(),
		Resources: &runtimeapi.ContainerResources{Linux: c.resources},
	}
	if img := c.r.images[c.imageID]; img != nil {
		st.Image.Image, st.ImageRef = img.display()
	}
	if c.state == Exited && c.reason == "" {
		st.Reason = "Completed"
		if c.exitCode != 0 {
			st.Reason = "Error"
		}
	}
	return st
}

// UpdateContainerResources sets what is given and keeps the rest.
func (svc *runtimeService) UpdateContainerResources(_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	c := svc.r.findContainer(req.GetContainerId())
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "failed to find container: not found")
	}
	if c.state == Exited {
		return nil, status.Errorf(codes.Unknown, "failed to update resources: container is in CONTAINER_EXITED state")
	}
	updated := proto.CloneOf(c.resources)
	if updated == nil {
		updated = &runtimeapi.LinuxContainerResources{}
	}
	proto.Merge(updated, req.GetLinux())
	c.resources = updated
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (r *Runtime) findContainer(id string) *container {
	if c := r.containers[id]; c != nil || id == "" {
		return c
	}
	var found *container
	for full, c := range r.containers {
		if strings.HasPrefix(full, id) {
			if found != nil {
				return nil
			}
			found = c
		}
	}
	return found
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
