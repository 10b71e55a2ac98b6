package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

const (
	reasonUnknown = "ContainerStatusUnknown"
	lostMessage   = "The container could not be located when the pod was deleted.  The container used to be Running"
	goneMessage   = "The container could not be located when the pod was terminated"
	doneMessage   = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
)

// fromReported makes a container from a reported status whose container the
// runtime does not have any more; nil when the status names none. One that is
// made and not yet started is not named, but the one before it is.
func fromReported(st *v1.ContainerStatus) *podstate.Container {
	if st == nil || st.ContainerID == "" && st.LastTerminationState.Terminated == nil {
		return nil
	}
	c := &podstate.Container{ID: podutil.BareID(st.ContainerID), Name: st.Name, RestartCount: int(st.RestartCount), State: podstate.StateExited, Image: st.Image, ImageID: st.ImageID, User: st.User}
	for i := range st.VolumeMounts {
		if m := &st.VolumeMounts[i]; m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled {
			c.RecursiveReadOnly = append(c.RecursiveReadOnly, m.MountPath)
		}
	}
	switch {
	case st.State.Terminated != nil:
		t := st.State.Terminated
		c.StartedAt, c.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
		c.ExitCode, c.Reason, c.Message = t.ExitCode, t.Reason, t.Message
	case st.State.Running != nil:
		c.StartedAt = st.State.Running.StartedAt.Time
		c.ExitCode, c.Reason, c.Message = 137, reasonUnknown, lostMessage
	case st.LastTerminationState.Terminated != nil:
		t := st.LastTerminationState.Terminated
		c.ID = podutil.BareID(t.ContainerID)
		c.StartedAt, c.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
		c.ExitCode, c.Reason, c.Message = t.ExitCode, t.Reason, t.Message
	default:
		return nil
	}
	return c
}
