package observe

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime describes the runtime as last seen.
type Runtime struct {
	// Name is the runtime's, e.g. containerd; empty before it answered.
	Name string
	// Version and Status are its last answers; nil before.
	Version *runtimeapi.VersionResponse
	Status  *runtimeapi.StatusResponse
	// Err is why it does not answer now; nil when it does.
	Err error
	// Ready and NetworkReady are its conditions; the messages say why not.
	Ready          bool
	Message        string
	NetworkReady   bool
	NetworkMessage string
	// LastOK is when the last status call succeeded.
	LastOK time.Time
	// Events tells that container events come.
	Events bool
	// Began is when it was asked first, LastRelist when everything was listed last;
	// zero before.
	Began, LastRelist time.Time
}

// Handlers are the runtime's, with what they can do; nil before it answered.
func (r *Runtime) Handlers() map[string]*runtimeapi.RuntimeHandlerFeatures {
	list := r.Status.GetRuntimeHandlers()
	if len(list) == 0 {
		return nil
	}
	out := map[string]*runtimeapi.RuntimeHandlerFeatures{}
	for _, h := range list {
		out[h.GetName()] = h.GetFeatures()
	}
	return out
}

// RecursiveReadOnly says whether the handler of pods without a runtime class makes
// mounts recursively read-only.
func (r *Runtime) RecursiveReadOnly() bool {
	for _, h := range r.Status.GetRuntimeHandlers() {
		if h.GetName() == "" {
			return h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return false
}

// Stuck says that the runtime's containers were not listed for longer than longest;
// nil when they were, and before they were to be.
func (r *Runtime) Stuck(now time.Time, longest time.Duration) error {
	const took, ask = "sync Loop took longer than expected: the runtime's containers", "; polylet status says whether the runtime answers"
	switch {
	case r.LastRelist.IsZero() && !r.Began.IsZero() && now.Sub(r.Began) > longest:
		return fmt.Errorf("%s could not be listed since the start %s ago%s", took, now.Sub(r.Began).Round(time.Second), ask)
	case !r.LastRelist.IsZero() && now.Sub(r.LastRelist) > longest:
		return fmt.Errorf("%s were last listed %s ago%s", took, now.Sub(r.LastRelist).Round(time.Second), ask)
	}
	return nil
}
