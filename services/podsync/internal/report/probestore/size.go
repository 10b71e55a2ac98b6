package probestore

import (
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// What goes to the probes process goes in one message for the whole node, and is
// held there: no pod may take so much of that that nothing is left for the others.
const (
	// mostCommand is how long a command may be to be shown there, in bytes. It is run
	// by its key whatever its length.
	mostCommand = 4 << 10
	// mostOfPod is how much all probes of a pod may take, commands left out, in bytes.
	// When they take more, those that take more than mostOfProbe are not made.
	mostOfPod, mostOfProbe = 128 << 10, 1 << 10
)

// What comes from the probes process, which talks to whatever runs in pods, is held for
// each target and shown: it is cut here too, whatever bounds that process keeps.
const (
	// mostMessage is how long a message may be, in bytes: a few times what the probes
	// process makes of one.
	mostMessage = 4 << 10
	// mostReason is as long as an event's reason may be, in bytes.
	mostReason = 128
)

// short cuts text to at most n bytes at a rune's border, and keeps no longer one in
// memory.
func short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n])
}

// bounded is a target as the probes process gets it.
func bounded(pod *v1.Pod, t Target) Target {
	if t.Probe.Exec != nil {
		if size(&t.Probe.ProbeHandler) > mostCommand {
			t.Probe.Exec.Command = nil
		}
		return t
	}
	if size(&t.Probe.ProbeHandler) > mostOfProbe && sizeOfPod(pod) > mostOfPod {
		t.Probe.ProbeHandler = v1.ProbeHandler{}
	}
	return t
}

func sizeOfPod(pod *v1.Pod) (n int) {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for _, p := range []*v1.Probe{list[i].LivenessProbe, list[i].ReadinessProbe, list[i].StartupProbe} {
				if p != nil && p.Exec == nil {
					n += size(&p.ProbeHandler)
				}
			}
		}
	}
	return n
}

func size(h *v1.ProbeHandler) (n int) {
	switch {
	case h.Exec != nil:
		for _, arg := range h.Exec.Command {
			n += len(arg)
		}
	case h.HTTPGet != nil:
		n = len(h.HTTPGet.Path) + len(h.HTTPGet.Host)
		for _, header := range h.HTTPGet.HTTPHeaders {
			n += len(header.Name) + len(header.Value)
		}
	case h.TCPSocket != nil:
		n = len(h.TCPSocket.Host)
	case h.GRPC != nil && h.GRPC.Service != nil:
		n = len(*h.GRPC.Service)
	}
	return n
}
