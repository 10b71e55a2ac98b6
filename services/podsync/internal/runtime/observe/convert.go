package observe

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

func convertSandbox(st *runtimeapi.PodSandboxStatus) podstate.Sandbox {
	s := podstate.Sandbox{
		ID:          st.GetId(),
		Attempt:     st.GetMetadata().GetAttempt(),
		Ready:       st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   fromNanos(st.GetCreatedAt()),
		PodStarted:  cri.PodStarted(st.GetAnnotations()),
		HostNetwork: st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
		Allocated:   st.GetAnnotations()[cri.AnnotationAllocated],
	}
	if ip := st.GetNetwork().GetIp(); ip != "" && !s.HostNetwork {
		s.IPs = append(s.IPs, ip)
		for _, more := range st.GetNetwork().GetAdditionalIps() {
			s.IPs = append(s.IPs, more.GetIp())
		}
	}
	return s
}

func convertContainer(st *runtimeapi.ContainerStatus, sandboxID string, said messages) podstate.Container {
	count, ok := cri.RestartCount(st.GetAnnotations())
	if !ok {
		count = int(st.GetMetadata().GetAttempt())
	}
	c := podstate.Container{
		ID:           st.GetId(),
		SandboxID:    sandboxID,
		Name:         st.GetLabels()[cri.LabelContainerName],
		RestartCount: count,
		State:        convertState(st.GetState()),
		CreatedAt:    fromNanos(st.GetCreatedAt()),
		Image:        st.GetImage().GetImage(),
		ImageID:      st.GetImageRef(),
		SpecHash:     st.GetAnnotations()[cri.AnnotationHash],
		Backoff:      cri.Backoff(st.GetAnnotations()),
		BackoffKey:   st.GetAnnotations()[cri.AnnotationBackoffKey],
		Round:        cri.Round(st.GetAnnotations()),
		GraceSeconds: cri.GraceSeconds(st.GetAnnotations()),
		PreStop:      cri.PreStop(st.GetAnnotations()),
		User:         convertUser(st.GetUser()),
		Kernel:       convertResources(st.GetResources().GetLinux()),
		Made:         cri.Resources(st.GetAnnotations()),
	}
	for _, m := range st.GetMounts() {
		if m.GetRecursiveReadOnly() {
			c.RecursiveReadOnly = append(c.RecursiveReadOnly, m.GetContainerPath())
		}
	}
	if c.Name == "" {
		c.Name = st.GetMetadata().GetName()
	}
	if c.ImageID == "" {
		c.ImageID = st.GetImageId()
	}
	if neverStarted(st) {
		c.State = podstate.StateCreated
	}
	if c.State != podstate.StateCreated {
		c.StartedAt = fromNanos(st.GetStartedAt())
	}
	if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		c.FinishedAt = fromNanos(st.GetFinishedAt())
		c.ExitCode = st.GetExitCode()
		c.Reason = st.GetReason()
		c.Message = said.of(st)
	}
	return c
}

// neverStarted tells of a container whose start was cut short because the caller
// went away: runtimes show it as failed, but it has not run, and nothing is
// wrong with it. It is made anew, unless its pod has come to its end meanwhile.
func neverStarted(st *runtimeapi.ContainerStatus) bool {
	return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && st.GetReason() == "StartError" && st.GetStartedAt() == 0 &&
		(strings.Contains(st.GetMessage(), "context canceled") || strings.Contains(st.GetMessage(), "context deadline exceeded"))
}

func convertState(s runtimeapi.ContainerState) podstate.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return podstate.StateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return podstate.StateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return podstate.StateExited
	}
	return podstate.StateUnknown
}

func convertUser(u *runtimeapi.ContainerUser) *v1.ContainerUser {
	l := u.GetLinux()
	if l == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		UID: l.GetUid(), GID: l.GetGid(), SupplementalGroups: l.GetSupplementalGroups(),
	}}
}

// convertResources reads back what the runtime says that it applied; nil when
// it does not say. What is not limited is zero there or below.
func convertResources(l *runtimeapi.LinuxContainerResources) *resources.Kernel {
	if l == nil || l.GetCpuShares() == 0 && l.GetCpuQuota() == 0 && l.GetMemoryLimitInBytes() == 0 {
		return nil
	}
	k := &resources.Kernel{Shares: max(l.GetCpuShares(), int64(resources.Shares(0))), Memory: max(l.GetMemoryLimitInBytes(), 0)}
	if l.GetCpuQuota() > 0 {
		k.Quota, k.Period = l.GetCpuQuota(), l.GetCpuPeriod()
	}
	return k
}

func fromNanos(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}
