// Package podutil answers questions about one v1.Pod that need nothing but the
// pod: whether it is static, its quality of service, a container by its name.
//
// It owns these answers, so that there is one of each; it must never hold state,
// do I/O, or know anything of the node, the runtime or the apiserver beside the
// API's types.
package podutil

import (
	v1 "k8s.io/api/core/v1"
)

// TerminalPhase says whether a pod in this phase stays in it for ever.
func TerminalPhase(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}
