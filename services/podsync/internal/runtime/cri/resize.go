package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateContainer changes the resources of a container; zero fields stay.
func (c *Client) UpdateContainer(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	req := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r}
	_, err := call(ctx, c, "update_container", c.cfg.RequestTimeout, req, c.runtime.UpdateContainerResources)
	return err
}

// UpdateSandbox tells the runtime what a sandbox's pod may use from now on. A
// runtime that does not know the call need not be told.
func (c *Client) UpdateSandbox(ctx context.Context, id string, overhead, containers *runtimeapi.LinuxContainerResources) error {
	req := &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Overhead: overhead, Resources: containers}
	_, err := call(ctx, c, "update_podsandbox_resources", c.cfg.RequestTimeout, req, c.runtime.UpdatePodSandboxResources)
	if IsUnimplemented(err) {
		return nil
	}
	return err
}

// ContainerMemory is how many bytes of memory a running container uses, the
// page cache included.
func (c *Client) ContainerMemory(ctx context.Context, id string) (uint64, error) {
	resp, err := look(ctx, c, "container_stats", &runtimeapi.ContainerStatsRequest{ContainerId: id}, c.runtime.ContainerStats)
	if err != nil {
		return 0, err
	}
	m := resp.GetStats().GetMemory()
	if used := m.GetUsageBytes(); used != nil {
		return used.GetValue(), nil
	}
	return m.GetWorkingSetBytes().GetValue(), nil
}
