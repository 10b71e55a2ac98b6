package fakecri

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandbox struct {
	r         *Runtime
	seq       int
	id, name  string
	cfg       *runtimeapi.PodSandboxConfig
	handler   string
	state     string
	createdAt time.Time
	ip        string
	// network: CNI ADD has been done for it, and CNI DEL not yet. teardowns counts
	// the DELs that were tried.
	network   bool
	teardowns int
	members   []*container // oldest first
}

type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	r *Runtime
}

// sandboxName is the name that is unique among sandboxes.
func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return strings.Join([]string{m.GetName(), m.GetNamespace(), m.GetUid(), fmt.Sprint(m.GetAttempt())}, "_")
}

func (s *sandbox) uid() string { return s.cfg.GetMetadata().GetUid() }

func (s *sandbox) hostNetwork() bool {
	return s.cfg.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (s *sandbox) info() SandboxInfo {
	return SandboxInfo{ID: s.id, Config: s.cfg, State: s.state, CreatedAt: s.createdAt, IP: s.ip, Network: s.network, Handler: s.handler}
}

func (s *sandbox) to(state, cause string) {
	m := s.cfg.GetMetadata()
	from := s.state
	s.state = state
	s.r.transitionLocked(Transition{
		Kind: KindSandbox, ID: s.id, SandboxID: s.id, PodUID: m.GetUid(), Namespace: m.GetNamespace(), Pod: m.GetName(),
		Attempt: m.GetAttempt(), From: from, To: state, Cause: cause,
	})
}

// containers of the sandbox, oldest first.
func (s *sandbox) containers() []*container { return slices.Clone(s.members) }

// RunPodSandbox creates and starts a sandbox.
func (svc *runtimeService) RunPodSandbox(ctx context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	r := svc.r
	cfg := req.GetConfig()
	if cfg.GetMetadata() == nil {
		return nil, status.Error(codes.Unknown, "sandbox config must include metadata")
	}
	if h := req.GetRuntimeHandler(); h != "" && !slices.Contains(r.cfg.RuntimeHandlers, h) {
		return nil, status.Errorf(codes.Unknown, "failed to get sandbox runtime: no runtime for %q is configured", h)
	}
	name := sandboxName(cfg.GetMetadata())
	r.mu.Lock()
	id, err := r.reserveLocked(r.sandboxNames, "sandbox", name)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = r.wait(ctx, r.cfg.Latency["RunPodSandbox"])
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sandbox{r: r, seq: r.nextSeq(), id: id, name: name, cfg: cfg, handler: req.GetRuntimeHandler()}
	if err == nil && !s.hostNetwork() && !r.networkReady {
		err = status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: cni plugin not initialized", id)
	}
	if err != nil {
		delete(r.sandboxNames, name)
		return nil, err
	}
	s.createdAt = time.Now()
	r.sandboxes[id] = s
	if !s.hostNetwork() {
		s.setUpNetworkLocked()
	}
	s.to(Ready, "RunPodSandbox")
	r.emitLocked(id, s, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.emitLocked(id, s, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// reserveLocked takes a unique name, or says who has it.
func (r *Runtime) reserveLocked(names map[string]string, kind, name string) (string, error) {
	if owner, taken := names[name]; taken {
		code := codes.FailedPrecondition
		if r.cfg.Containerd16 {
			code = codes.Unknown
		}
		return "", status.Errorf(code, "failed to reserve %s name %q: name %q is reserved for %q", kind, name, name, owner)
	}
	id := r.newID(kind, name)
	names[name] = id
	return id, nil
}

// stopLocked kills what runs in the sandbox and makes it NotReady.
func (s *sandbox) stopLocked(cause string) {
	for _, c := range s.containers() {
		if c.state == Running {
			c.exitLocked(137, "", cause, "KILL")
		}
	}
	s.endLocked(cause)
}

// endLocked makes the sandbox NotReady. Its network stays as it is.
func (s *sandbox) endLocked(cause string) {
	if s.state != Ready {
		return
	}
	s.to(NotReady, cause)
	s.r.emitLocked(s.id, s, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// StopPodSandbox kills the sandbox's containers and the sandbox, marks it NotReady, and
// only then takes its network down: when that fails, so does the call, and the next one
// tries it again. One that is stopped is a success, and so is one that is unknown, except
// to containerd 1.6.
func (svc *runtimeService) StopPodSandbox(ctx context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	if err := svc.r.wait(ctx, svc.r.cfg.Latency["StopPodSandbox"]); err != nil {
		return nil, err
	}
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	s := svc.r.findSandbox(req.GetPodSandboxId())
	if s == nil && svc.r.cfg.Containerd16 {
		return nil, status.Errorf(codes.NotFound, "an error occurred when try to find sandbox %q: not found", req.GetPodSandboxId())
	}
	if s != nil {
		s.stopLocked("StopPodSandbox")
		if err := s.tearDownNetworkLocked(ctx, "StopPodSandbox"); err != nil {
			return nil, err
		}
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

// RemovePodSandbox stops the sandbox if need be, its network too, and removes it with its
// containers. An unknown one is a success.
func (svc *runtimeService) RemovePodSandbox(ctx context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	r := svc.r
	if err := r.wait(ctx, r.cfg.Latency["RemovePodSandbox"]); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.findSandbox(req.GetPodSandboxId())
	if s == nil {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	s.stopLocked("RemovePodSandbox")
	if err := s.tearDownNetworkLocked(ctx, "RemovePodSandbox"); err != nil {
		return nil, status.Errorf(codes.Unknown, "failed to forcibly stop sandbox %q: %s", s.id, status.Convert(err).Message())
	}
	if r.sandboxes[s.id] != s { // removed by another call meanwhile
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	for _, c := range s.containers() {
		c.remove("RemovePodSandbox")
	}
	// containerd sends this event while the sandbox can still be found.
	r.emitLocked(s.id, s, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	delete(r.sandboxes, s.id)
	delete(r.sandboxNames, s.name)
	s.to(Removed, "RemovePodSandbox")
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus describes one sandbox.
func (svc *runtimeService) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	s := svc.r.findSandbox(req.GetPodSandboxId())
	if s == nil {
		return nil, status.Error(codes.NotFound, "an error occurred when try to find sandbox: not found")
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: s.status()}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": "{}"}
	}
	return resp, nil
}

func (s *sandbox) criState() runtimeapi.PodSandboxState {
	if s.state == Ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	st := &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: s.cfg.GetMetadata(), State: s.criState(), CreatedAt: s.createdAt.UnixNano(),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: s.cfg.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
		Labels: s.cfg.GetLabels(), Annotations: s.cfg.GetAnnotations(), RuntimeHandler: s.handler,
	}
	return st
}

// ListPodSandbox lists sandboxes, oldest first.
func (svc *runtimeService) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f := req.GetFilter()
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range svc.r.sandboxList() {
		if f.GetState() != nil && f.GetState().GetState() != s.criState() ||
			!idMatches(f.GetId(), s.id) || !labelsMatch(f.GetLabelSelector(), s.cfg.GetLabels()) {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: s.id, Metadata: s.cfg.GetMetadata(), State: s.criState(), CreatedAt: s.createdAt.UnixNano(),
			Labels: s.cfg.GetLabels(), Annotations: s.cfg.GetAnnotations(), RuntimeHandler: s.handler,
		})
	}
	return resp, nil
}

// UpdatePodSandboxResources accepts the resources of a sandbox that is ready.
func (svc *runtimeService) UpdatePodSandboxResources(_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	if svc.r.findSandbox(req.GetPodSandboxId()) == nil {
		return nil, status.Error(codes.NotFound, "failed to find sandbox: not found")
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// findSandbox takes an identifier or, as containerd does, an unambiguous start of one.
func (r *Runtime) findSandbox(id string) *sandbox {
	if s := r.sandboxes[id]; s != nil || id == "" {
		return s
	}
	var found *sandbox
	for full, s := range r.sandboxes {
		if strings.HasPrefix(full, id) {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

func idMatches(filter, id string) bool { return filter == "" || strings.HasPrefix(id, filter) }

func labelsMatch(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
