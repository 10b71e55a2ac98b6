// Package explain puts together what a pod waits for: what the planner says,
// what goes on within its actions, what probes said last, and whether the
// apiserver takes the pod's status. Pure; it must never ask anybody.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Trouble is why the pod is not what others take it for: the apiserver does not have
// its status, or not all of it, its manifest cannot be used, or its volumes are not up to date.
type Trouble struct {
	// Message of the last attempt; empty when it went well.
	Message string
	// Refused are the parts that the apiserver does not take for good, without
	// which the rest is written.
	Refused []RefusedPart
	// Away is true when the apiserver did not answer, false when it refused.
	Away bool
	// Since the first failure in a row; Retry is the next attempt, zero when none is planned.
	Since, Retry time.Time
	// Manifest is what is wrong with a static pod's manifest, whose last good content
	// runs; empty when nothing is.
	Manifest      string
	ManifestSince time.Time
	// Volumes are those that could not be brought up to date; the pod goes on with them.
	Volumes []podstate.StaleVolume
}

// RefusedPart is one part of a status.
type RefusedPart struct {
	// Part as the status writer names it; Container is empty when it is not one.
	Part, Container string
	// Why is the apiserver's answer.
	Why   string
	Since time.Time
}

// Waits says what the pod waits for, the gravest first. trouble is nil when
// there is none.
func Waits(e podcache.Explanation, trouble *Trouble) []podstate.Wait {
	var out []podstate.Wait
	named := volumesOf(e.Waits)
	for _, w := range e.Waits {
		w.Reason = plain(w.Reason)
		steps := within(e.Running, w, named)
		switch {
		case w.Kind == "probe":
			w.Reason = withAttempt(w.Reason, e.Timeline, w.Object)
			out = append(out, w)
		case w.Action.Kind == podstate.DeleteObject && trouble != nil && trouble.Message != "":
			// What holds it up is said below.
		case len(steps) == 0:
			out = append(out, w)
		default:
			for _, s := range steps {
				out = append(out, refine(w, s))
			}
		}
	}
	out = append(out, unsent(trouble)...)
	slices.SortStableFunc(out, func(a, b podstate.Wait) int { return cmp.Compare(rank(a), rank(b)) })
	return out
}

// plain takes out of an error what hides its cause: the gRPC code that the
// runtime's errors begin with, and containerd's way through an image's pull.
func plain(reason string) string {
	for _, noise := range [][2]string{
		{"rpc error: code = ", " desc = "},
		{`failed to pull and unpack image "`, `": `},
		{`failed to resolve reference "`, `": `},
		{"failed to resolve image: ", ""},
	} {
		for {
			before, rest, begins := strings.Cut(reason, noise[0])
			_, rest, ends := strings.Cut(rest, noise[1])
			if !begins || !ends {
				break
			}
			reason = before + rest
		}
	}
	return reason
}

// rank puts what failed before what merely goes on, and causes before what
// follows from them.
func rank(w podstate.Wait) int {
	order := []string{"runtime", "admission", "pressure", "network", "sandbox", "address", "volume", "image", "backoff", "container", "probe", "gate", "resize", "termination", "apiserver", "manifest"}
	n := slices.Index(order, w.Kind)
	if w.Retry.IsZero() && w.Kind != "runtime" && w.Kind != "network" && w.Kind != "admission" {
		n += len(order)
	}
	return n
}

// volumesOf are the volumes that have a wait of their own, which says more than that
// they are being set up: how they failed before.
func volumesOf(waits []podstate.Wait) map[string]bool {
	named := map[string]bool{}
	for _, w := range waits {
		if w.Kind == "volume" && w.Object != "" {
			named[w.Object] = true
		}
	}
	return named
}

// within are the steps of the action that w is about, but for the very young, and
// for those of the volumes that are named already.
func within(running []timeline.Running, w podstate.Wait, named map[string]bool) []timeline.Running {
	var out []timeline.Running
	for _, s := range running {
		if w.Action.Kind != "" && s.Action == string(w.Action.Kind) && (w.Object == s.ActionObject || w.Object == "") && !(s.What == timeline.Volume && named[s.Object]) {
			out = append(out, s)
		}
	}
	return out
}

// refine makes of an action's wait the wait for one of its steps.
func refine(w podstate.Wait, s timeline.Running) podstate.Wait {
	w.Since = s.Since
	switch s.What {
	case timeline.PreStop:
		w.Reason = fmt.Sprintf("the preStop hook of container %s (%s) has not ended; %s", s.Object, s.Detail, w.Reason)
		w.Advice = "look at what the hook does; the container is killed when the grace period is over"
	case timeline.PostStart:
		w.Reason = fmt.Sprintf("the postStart hook of container %s (%s) has not ended", s.Object, s.Detail)
		w.Advice = "look at what the hook does; the container does not count as started before"
	case timeline.Volume:
		w.Object = s.Object
		w.Reason = fmt.Sprintf("volume %s (%s) is not set up yet", s.Object, s.Detail)
		w.Advice = "if it does not end, look at what is behind the volume: the node's mounts and the server or disk that has to answer, or who attaches it and its CSI driver on this node"
	case timeline.Unmount:
		w.Object = s.Object
		w.Reason = fmt.Sprintf("volume %s (%s) is not unmounted yet", s.Object, s.Detail)
		w.Advice = "if it does not end, look at the server or driver behind the volume, then who keeps the mount busy: findmnt, fuser -m"
	case timeline.UnmountAgain:
		w.Object = s.Object
		w.Reason = fmt.Sprintf("volume %s could not be unmounted: %s", s.Object, plain(s.Detail))
		w.Advice = "mend what the error names; it is tried again by itself, and other volumes of the pod do not wait for it"
	case timeline.Place:
		w.Reason = "it waits for its turn: the runtime is given only so many pods at once; " + w.Reason
		w.Advice = "if it does not end, other pods' starts or stops hang in the runtime: look at its log"
	case timeline.PullTurn:
		w.Reason = "its pull waits for its turn: " + s.Detail
		w.Advice = "it goes on by itself; if that takes too long, look which pulls hang (polylet explain of other pods, the registry), or change what the reason names in the kubelet's configuration"
	default:
		w.Reason = strings.TrimSpace(s.What+" "+s.Object) + " has not ended; " + w.Reason
	}
	return w
}

// withAttempt adds the newest failed attempt of a probe since the container runs. What
// its liveness probe says holds up no container that runs.
func withAttempt(reason string, line []timeline.Entry, container string) string {
	for _, e := range slices.Backward(line) {
		switch {
		case e.Object != container, strings.HasPrefix(e.Detail, "Liveness "):
		case e.What == timeline.ProbeAttempt:
			if strings.Contains(reason, " probe fails: ") || strings.Contains(reason, e.Detail) {
				return reason
			}
			return reason + ": " + e.Detail
		case e.What == "container runs":
			return reason
		}
	}
	return reason
}

// mostVolumesNamed is how many volumes are named that are not up to date.
const mostVolumesNamed = 10

// outdated is of volumes that a pod goes on with as they are.
func outdated(volumes []podstate.StaleVolume) []podstate.Wait {
	var out []podstate.Wait
	for _, v := range volumes[:min(len(volumes), mostVolumesNamed)] {
		out = append(out, podstate.Wait{
			Kind: "volume", Object: v.Volume, Reason: "the volume stays as it is, since it cannot be brought up to date: " + plain(v.Why), Since: v.Since, Retry: v.Retry,
			Advice: "the pod goes on with what the volume has; mend what the error names, or create what it does not find",
		})
	}
	if more := len(volumes) - mostVolumesNamed; more > 0 {
		out = append(out, podstate.Wait{Kind: "volume", Reason: fmt.Sprintf("%d more volumes cannot be brought up to date", more)})
	}
	return out
}

// unsent is what the apiserver does not have of the status, and what the manifest
// does not have of the pod; t may be nil.
func unsent(t *Trouble) []podstate.Wait {
	if t == nil {
		return nil
	}
	out := outdated(t.Volumes)
	if t.Manifest != "" {
		out = append(out, podstate.Wait{
			Kind: "manifest", Reason: "the pod of the last good content goes on: " + t.Manifest, Since: t.ManifestSince,
			Advice: "correct the manifest, or remove it to end the pod; polylet manifest checks one",
		})
	}
	switch {
	case t.Message == "":
	case t.Away:
		out = append(out, podstate.Wait{
			Kind: "apiserver", Reason: "the apiserver does not answer, others see an old status of this pod: " + t.Message, Since: t.Since, Retry: t.Retry,
			Advice: "check that the apiserver runs and can be reached from this node",
		})
	default:
		out = append(out, podstate.Wait{
			Kind: "apiserver", Reason: "the apiserver has refused the pod's status: " + t.Message, Since: t.Since, Retry: t.Retry,
			Advice: "others see an old status of this pod; if it says forbidden, give the node the role system:node; else look for a webhook or policy that refuses",
		})
	}
	for _, r := range t.Refused {
		out = append(out, podstate.Wait{
			Kind: "apiserver", Object: r.Container, Reason: "the apiserver refuses " + r.Part + " of the pod's status for good, the rest is written: " + r.Why, Since: r.Since,
			Advice: "others see an old state of this part until it changes again; to have it right now, delete the pod",
		})
	}
	return out
}

// Verdict is why a pod has ended as it did: the status's own message, or else
// how the first failed container ended. Empty for a pod that did not fail.
func Verdict(st *v1.PodStatus) (reason, message string) {
	if st.Phase != v1.PodFailed || st.Reason != "" || st.Message != "" {
		return st.Reason, st.Message
	}
	for n, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			t := list[i].State.Terminated
			// An init container that ran out of memory has failed whatever its exit code.
			if t == nil || t.ExitCode == 0 && (n > 0 || t.Reason != "OOMKilled") {
				continue
			}
			message = fmt.Sprintf("container %s ended with exit code %d", list[i].Name, t.ExitCode)
			if t.Message != "" {
				message += ": " + t.Message
			}
			return t.Reason, message
		}
	}
	return "", ""
}
