package podutil

import (
	v1 "k8s.io/api/core/v1"
)

func TerminalPhase(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}
