// Package oomlimit says whose memory was used up when the kernel has killed a container's
// process, in the words of the Event of it and of polylet explain.
//
// It owns these words. It must never look for kills, nor judge who may have done what.
package oomlimit

import (
	"fmt"
	"slices"
	"strings"
)

// UsedUp is whose memory was, for which a process of a pod in cgroup was killed: the
// machine's (system), or that of the cgroup limit, which may be empty, not known. Who is
// killed for a limit of all pods (enforceNodeAllocatable) may have none of his own.
func UsedUp(podUID string, system bool, cgroup, limit string) string {
	dashed, underlined := "pod"+podUID, "pod"+strings.ReplaceAll(podUID, "-", "_")
	ofPod := func(element string) bool {
		name := strings.TrimSuffix(element, ".slice")
		return name == dashed || strings.HasSuffix(name, "-"+underlined)
	}
	path := strings.Split(limit, "/")
	switch i := slices.IndexFunc(path, ofPod); {
	case system:
		return "the node's memory"
	case i >= 0 && i == len(path)-1:
		return "the memory limit of its pod"
	case i >= 0, limit == cgroup, limit == "":
		return "its memory limit"
	}
	return fmt.Sprintf("the memory limit of cgroup %s, in which other pods are, too,", limit)
}
