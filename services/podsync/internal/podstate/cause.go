package podstate

// Cause is why podsync stops a container.
type Cause string

// The causes.
const (
	// CauseEnd: the pod ends, or its spec has the container no more.
	CauseEnd Cause = ""
	// CauseRound: all containers of the pod are restarted.
	CauseRound Cause = "restart of all containers"
	// CauseSandbox: its sandbox cannot be used any more.
	CauseSandbox Cause = "sandbox"
	// CauseUnknown: the runtime does not know how it stands.
	CauseUnknown Cause = "unknown state"
	// CauseDefinition: the spec has another definition of it.
	CauseDefinition Cause = "definition"
	// CauseHook: its postStart hook failed.
	CauseHook Cause = "postStart hook"
	// CauseResize: what it was allocated takes a restart.
	CauseResize Cause = "resize"
	// CauseProbe: its liveness or startup probe failed.
	CauseProbe Cause = "probe"
)
