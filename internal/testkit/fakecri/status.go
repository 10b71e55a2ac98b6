package fakecri

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version names the runtime.
func (svc *runtimeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: svc.r.cfg.RuntimeName, RuntimeVersion: svc.r.cfg.RuntimeVersion, RuntimeApiVersion: "v1",
	}, nil
}

// Status reports the conditions that SetRuntimeReady and SetNetworkReady set.
func (svc *runtimeService) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	runtime := &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: svc.r.runtimeReady}
	if !svc.r.runtimeReady {
		runtime.Reason, runtime.Message = "ContainerdNotReady", "the fake runtime is not ready"
	}
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: svc.r.networkReady}
	if !svc.r.networkReady {
		network.Reason = "NetworkPluginNotReady"
		network.Message = "Network plugin returns error: cni plugin not initialized"
	}
	features := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}
	resp := &runtimeapi.StatusResponse{
		Status:          &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{runtime, network}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Features: features}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	for _, h := range svc.r.cfg.RuntimeHandlers {
		resp.RuntimeHandlers = append(resp.RuntimeHandlers, &runtimeapi.RuntimeHandler{Name: h, Features: features})
	}
	if req.GetVerbose() {
		resp.Info = map[string]string{"config": "{}"}
	}
	return resp, nil
}

// RuntimeConfig names the cgroup driver.
func (svc *runtimeService) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	if svc.r.cfg.NoRuntimeConfig {
		return nil, status.Error(codes.Unimplemented, "method RuntimeConfig not implemented")
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: svc.r.cfg.CgroupDriver}}, nil
}

// UpdateRuntimeConfig keeps the pod CIDR, see PodCIDR.
func (svc *runtimeService) UpdateRuntimeConfig(_ context.Context, req *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	svc.r.podCIDR = req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// PodCIDR returns what UpdateRuntimeConfig was given last.
func (r *Runtime) PodCIDR() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.podCIDR
}

// ContainerStats reports on one container.
func (svc *runtimeService) ContainerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	c := svc.r.findContainer(req.GetContainerId())
	if c == nil {
		return nil, status.Error(codes.NotFound, "failed to find container: not found")
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats reports on all containers; only running ones have CPU and memory.
func (svc *runtimeService) ListContainerStats(_ context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	f := req.GetFilter()
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for _, c := range svc.r.containerList() {
		if idMatches(f.GetId(), c.id) && idMatches(f.GetPodSandboxId(), c.sandbox.id) &&
			labelsMatch(f.GetLabelSelector(), c.cfg.GetLabels()) {
			resp.Stats = append(resp.Stats, c.stats())
		}
	}
	return resp, nil
}

func (c *container) stats() *runtimeapi.ContainerStats {
	now := time.Now().UnixNano()
	st := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.cfg.GetMetadata(), Labels: c.cfg.GetLabels(), Annotations: c.cfg.GetAnnotations(),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now, FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: c.r.cfg.ImageDir},
			UsedBytes: &runtimeapi.UInt64Value{Value: c.script.WritableBytes}, InodesUsed: &runtimeapi.UInt64Value{Value: 1},
		},
	}
	if c.state != Running {
		return st
	}
	spent := uint64(time.Since(c.startedAt).Seconds() * float64(c.script.CPU))
	st.Cpu = &runtimeapi.CpuUsage{
		Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: spent}, UsageNanoCores: &runtimeapi.UInt64Value{Value: c.script.CPU},
	}
	st.Memory = &runtimeapi.MemoryUsage{
		Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{Value: c.script.MemoryBytes},
		UsageBytes: &runtimeapi.UInt64Value{Value: c.script.MemoryBytes}, RssBytes: &runtimeapi.UInt64Value{Value: c.script.MemoryBytes},
	}
	return st
}
