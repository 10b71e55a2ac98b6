package collector

import (
	"slices"

	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// logging are the containers of which each has its own directories.
func logging(pod inventory.PresentPod) []inventory.Container {
	if over(pod) {
		return nil
	}
	return slices.Concat(pod.Containers, pod.Ended)
}

// over says of a pod whether nothing of it is left but containers: it may have ended long
// ago, and there may be many of those. Their directories are not measured.
func over(pod inventory.PresentPod) bool {
	return !pod.Sandbox.Ready && len(pod.Containers)+len(pod.Volumes) == 0
}
