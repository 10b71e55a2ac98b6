package podstate

import (
	"time"
)

// Wait is one thing that the pod waits for.
type Wait struct {
	// Kind: admission, pressure, image, volume, sandbox, network, container, probe,
	// gate, backoff, resize, termination, apiserver or runtime.
	Kind string
	// Action is the key of the action that it waits for; zero when none.
	Action Key
	// Object is an image, volume or container name, or empty.
	Object string
	Reason string
	Advice string
	Since  time.Time
	Retry  time.Time
}

// PutOff is that a pod is not started yet though it was admitted.
type PutOff struct {
	// Until is when it starts unless the pod is let go before.
	Until time.Time
	// Reason and Advice are for people.
	Reason, Advice string
}
