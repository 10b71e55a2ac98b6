// Package notice words what podsync has to say to people in several places at once:
// events, timelines and health.
//
// It owns the words. It must never decide whether something is said, but to whom.
package notice

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/status"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// Events records events; *event.Recorder has it.
type Events interface {
	Pod(pod *v1.Pod, eventType, reason, message string)
	Container(pod *v1.Pod, container, eventType, reason, message string)
	Node(eventType, reason, message string)
}

// Mirrors shows static pods in the apiserver; *mirror.Keeper has it.
type Mirrors interface {
	// Renew replaces the mirror of a static pod.
	Renew(static types.UID)
}

// Notices say it. Safe for concurrent use.
type Notices struct {
	Events  Events
	Lines   *timeline.Book
	Mirrors Mirrors
	Health  health.Reporter
}

// Refused puts into a pod's timeline that its status was not written.
func (n Notices) Refused(uid types.UID, err error) {
	n.Lines.Note(uid, timeline.Entry{What: "status not written", Error: err.Error()})
	// A static pod begins anew when the machine does, with containers that its
	// mirror has as ended for good.
	if apierrors.IsInvalid(err) && strings.Contains(err.Error(), "may not be transitioned to non-terminated state") {
		n.Mirrors.Renew(uid)
	}
}

// Withheld tells the pod's owner that a part of its status is refused for good.
// A mirror is replaced instead, see Refused.
func (n Notices) Withheld(pod *v1.Pod, r status.Refusal) {
	if podutil.Static(pod) {
		return
	}
	message := fmt.Sprintf("The apiserver refuses a part of the pod's status for good; the rest is written without it: %s", r.Why)
	if r.Container != "" {
		n.Events.Container(pod, r.Container, v1.EventTypeWarning, "StatusRefused", message)
		return
	}
	n.Events.Pod(pod, v1.EventTypeWarning, "StatusRefused", message)
}

// mostInDoubt is how many pods are named at once.
const mostInDoubt = 10

// InDoubt says which static pods go on without being looked after.
func (n Notices) InDoubt(pods []string) {
	text := ""
	if len(pods) > 0 {
		named := strings.Join(pods[:min(len(pods), mostInDoubt)], ", ")
		if more := len(pods) - mostInDoubt; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		text = fmt.Sprintf("no manifest that can be read is that of %s: what runs goes on, but nobody probes or restarts it; correct the manifests that cannot be read; what is of none of them when all can be read is ended", named)
		n.Events.Node(v1.EventTypeWarning, "StaticPodInDoubt", text)
	}
	n.Health.Set("static pods in doubt", len(pods) == 0, text)
}

// NoChains says that the chains of iptables cannot be made.
func (n Notices) NoChains(message string) {
	n.Events.Node(v1.EventTypeWarning, "NoIPTablesChains", message)
}

// Probes are the events of probes, whose failed attempts stand in the pod's timeline
// as well. It implements probestore.Events.
type Probes struct{ Notices }

// Container implements probestore.Events.
func (p Probes) Container(pod *v1.Pod, container, eventType, reason, message string) {
	p.Lines.Note(pod.UID, timeline.Entry{What: timeline.ProbeAttempt, Object: container, Detail: message})
	p.Events.Container(pod, container, eventType, reason, message)
}
