package podutil

import (
	v1 "k8s.io/api/core/v1"
)

// Sidecar says whether an init container goes on running beside the others.
func Sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
