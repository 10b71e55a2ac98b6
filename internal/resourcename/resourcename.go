// Package resourcename says whose resource a name is: Kubernetes' own, or what somebody
// else offers on a node, as a device plugin. It owns that rule. It must never know which
// resources there are.
package resourcename

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Extended says whether a resource is not Kubernetes' own.
func Extended(name v1.ResourceName) bool {
	text := string(name)
	return strings.Contains(text, "/") && !strings.Contains(text, v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(text, v1.DefaultResourceRequestsPrefix)
}
