package cri

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/resources/cgroup"
)

// Version asks for the runtime's name and versions.
func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return look(ctx, c, opVersion, &runtimeapi.VersionRequest{}, c.runtime.Version)
}

// Status asks for the runtime's conditions, handlers and features.
func (c *Client) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	return look(ctx, c, opStatus, &runtimeapi.StatusRequest{}, c.runtime.Status)
}

// CgroupDriver asks how the runtime names cgroups: empty when it does not say, and
// known is false when it does not know the question.
func (c *Client) CgroupDriver(ctx context.Context) (driver cgroup.Driver, known bool, err error) {
	answer, err := look(ctx, c, "runtime_config", &runtimeapi.RuntimeConfigRequest{}, c.runtime.RuntimeConfig)
	switch {
	case IsUnimplemented(err):
		return "", false, nil
	case err != nil:
		return "", false, err
	case answer.GetLinux() == nil:
		return "", true, nil
	case answer.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
		return cgroup.Systemd, true, nil
	}
	return cgroup.Cgroupfs, true, nil
}

// ContainerRuns says whether this very container runs; a runtime may take a part of
// an id for the whole.
func (c *Client) ContainerRuns(ctx context.Context, id string) (bool, error) {
	status, err := c.ContainerStatus(ctx, id)
	if IsNotFound(err) {
		return false, nil
	}
	return err == nil && status.GetId() == id && status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, err
}

// UpdatePodCIDR tells the runtime the node's pod network.
func (c *Client) UpdatePodCIDR(ctx context.Context, cidr string) error {
	req := &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{
		NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr},
	}}
	_, err := call(ctx, c, "update_runtime_config", c.cfg.LookTimeout, req, c.runtime.UpdateRuntimeConfig)
	return err
}

// RunSandbox makes and starts a sandbox and returns its id.
func (c *Client) RunSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	req := &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler}
	began := time.Now()
	resp, err := call(ctx, c, "run_podsandbox", 2*c.cfg.RequestTimeout, req, c.runtime.RunPodSandbox)
	c.metrics.ranSandbox(handler, began, err)
	return resp.GetPodSandboxId(), err
}

// StopSandbox stops a sandbox and what runs in it. One that is gone is a success.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, c, "stop_podsandbox", c.cfg.RequestTimeout, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}, c.runtime.StopPodSandbox)
	return exceptNotFound(err)
}

// RemoveSandbox removes a sandbox and its containers. One that is gone is a success.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, c, "remove_podsandbox", c.cfg.RequestTimeout, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}, c.runtime.RemovePodSandbox)
	return exceptNotFound(err)
}

// SandboxStatus describes a sandbox.
func (c *Client) SandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	resp, err := look(ctx, c, "podsandbox_status", &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, c.runtime.PodSandboxStatus)
	return resp.GetStatus(), err
}

// SandboxProcess is the process id of a sandbox's own process, as containerd and
// CRI-O say it beside the status (0 when the runtime does not say), and whether
// the sandbox is ready.
func (c *Client) SandboxProcess(ctx context.Context, id string) (pid int, ready bool, err error) {
	req := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true}
	resp, err := look(ctx, c, "podsandbox_status", req, c.runtime.PodSandboxStatus)
	if err != nil {
		return 0, false, err
	}
	ready = resp.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	var info struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal([]byte(resp.GetInfo()["info"]), &info) != nil {
		return 0, ready, nil
	}
	return info.PID, ready, nil
}

// ListSandboxes lists the sandboxes of one pod, or all when uid is empty.
func (c *Client) ListSandboxes(ctx context.Context, uid string) ([]*runtimeapi.PodSandbox, error) {
	req := &runtimeapi.ListPodSandboxRequest{}
	if uid != "" {
		req.Filter = &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{LabelPodUID: uid}}
	}
	resp, err := look(ctx, c, "list_podsandbox", req, c.runtime.ListPodSandbox)
	return resp.GetItems(), err
}

// ReadySandboxes lists the sandboxes of all pods that are ready.
func (c *Client) ReadySandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	req := &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}}
	resp, err := look(ctx, c, "list_podsandbox", req, c.runtime.ListPodSandbox)
	return resp.GetItems(), err
}

// CreateContainer creates a container and returns its id.
func (c *Client) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	req := &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox}
	resp, err := call(ctx, c, "create_container", c.cfg.RequestTimeout, req, c.runtime.CreateContainer)
	return resp.GetContainerId(), err
}

// StartContainer starts a container that was created.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := call(ctx, c, "start_container", c.cfg.RequestTimeout, &runtimeapi.StartContainerRequest{ContainerId: id}, c.runtime.StartContainer)
	return err
}

// StopContainer asks a container to end, and kills it after the grace period.
// One that is gone is a success.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	req := &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace / time.Second)}
	_, err := call(ctx, c, "stop_container", grace+c.cfg.RequestTimeout, req, c.runtime.StopContainer)
	return exceptNotFound(err)
}

// RemoveContainer removes a container, killing it when it runs. One that is
// gone is a success.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := call(ctx, c, "remove_container", c.cfg.RequestTimeout, &runtimeapi.RemoveContainerRequest{ContainerId: id}, c.runtime.RemoveContainer)
	return exceptNotFound(err)
}

// ContainerStatus describes a container.
func (c *Client) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := look(ctx, c, "container_status", &runtimeapi.ContainerStatusRequest{ContainerId: id}, c.runtime.ContainerStatus)
	return resp.GetStatus(), err
}

// ListContainers lists the containers of one pod, or all when uid is empty.
func (c *Client) ListContainers(ctx context.Context, uid string) ([]*runtimeapi.Container, error) {
	req := &runtimeapi.ListContainersRequest{}
	if uid != "" {
		req.Filter = &runtimeapi.ContainerFilter{LabelSelector: map[string]string{LabelPodUID: uid}}
	}
	resp, err := look(ctx, c, "list_containers", req, c.runtime.ListContainers)
	return resp.GetContainers(), err
}

// RunningContainers lists the containers of all pods that run.
func (c *Client) RunningContainers(ctx context.Context) ([]*runtimeapi.Container, error) {
	req := &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}}
	resp, err := look(ctx, c, "list_containers", req, c.runtime.ListContainers)
	return resp.GetContainers(), err
}

// ReopenLog makes the runtime open a running container's log file anew, after
// it has got another name.
func (c *Client) ReopenLog(ctx context.Context, id string) error {
	req := &runtimeapi.ReopenContainerLogRequest{ContainerId: id}
	_, err := call(ctx, c, "reopen_container_log", c.cfg.LookTimeout, req, c.runtime.ReopenContainerLog)
	return err
}

// Events opens the stream of container events, which lives as long as ctx; see
// IsUnimplemented for the first that next gives.
func (c *Client) Events(ctx context.Context) (next func() (*runtimeapi.ContainerEventResponse, error), err error) {
	stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{}, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return nil, err
	}
	return stream.Recv, nil
}

func exceptNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}
