// Package oomkill says what is told of a process that the kernel has killed for lack of
// memory: an Event of the Node when the machine had none left, and one of the pod whose
// process it was.
//
// It owns these Events' words and how many there are. It must never look for kills.
package oomkill

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/oomlimit"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

const (
	// old is a kill that is no news; who looks at Events has seen it, or never will.
	old = 10 * time.Minute
	// podPause is between two Events about one container, whose children may die one
	// after the other.
	podPause = time.Minute
)

// Kill is a process that the kernel has killed.
type Kill struct {
	// Sequence is its number since the machine started.
	Sequence uint64
	// Time is when it was.
	Time time.Time
	// Process is its name, PID its number.
	Process string
	PID     int
	// System is whether the machine had no memory left.
	System bool
	// Cgroup is the process's, Limit the one that had no memory left; empty where that is
	// not known.
	Cgroup, Limit string
	// Pod is whose process it was, Container of which of its containers; empty for
	// nobody's.
	Pod       types.NamespacedName
	PodUID    types.UID
	Container string
}

// Events takes Events. One with the key of an earlier one is the same.
type Events interface {
	SendOnce(ctx context.Context, e node.Event, at time.Time, key string)
	SendPodOnce(ctx context.Context, pod v1.ObjectReference, e node.Event, at time.Time, key string)
}

// Teller tells of kills. One goroutine uses it.
type Teller struct {
	events Events
	boot   string
	// last is the newest kill that was told of.
	last uint64
	// told is when a container was told of last.
	told map[string]time.Time
}

// New returns a Teller; boot names this start of the machine, in which no two kills
// have one number.
func New(events Events, boot string) *Teller {
	return &Teller{events: events, boot: strings.ToLower(boot), told: map[string]time.Time{}}
}

// Tell tells of those that are news: it may be called again with the same.
func (t *Teller) Tell(ctx context.Context, kills []Kill) {
	now := time.Now()
	for key, at := range t.told {
		if now.Sub(at) >= podPause {
			delete(t.told, key)
		}
	}
	for _, k := range kills {
		if k.Sequence <= t.last {
			continue
		}
		t.last = k.Sequence
		if now.Sub(k.Time) >= old {
			continue
		}
		key := fmt.Sprintf("oom-%s-%d", t.boot, k.Sequence)
		if k.System {
			t.events.SendOnce(ctx, node.Event{
				Type: v1.EventTypeWarning, Reason: "SystemOOM",
				Message: fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID),
			}, k.Time, key)
		}
		t.tellPod(ctx, k, key)
	}
}

// tellPod tells of a container's process: of one that was not the container's first,
// nobody else does. Source: https://github.com/kubernetes/kubernetes/issues/69676
func (t *Teller) tellPod(ctx context.Context, k Kill, key string) {
	container := string(k.PodUID) + "/" + k.Container
	if _, lately := t.told[container]; k.PodUID == "" || lately {
		return
	}
	t.told[container] = k.Time
	about := v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: k.Pod.Namespace, Name: k.Pod.Name, UID: k.PodUID}
	if k.Container != "" {
		about.FieldPath = fmt.Sprintf("spec.containers{%s}", k.Container)
	}
	t.events.SendPodOnce(ctx, about, node.Event{
		Type: v1.EventTypeWarning, Reason: "OOMKilling",
		Message: fmt.Sprintf("Process %s (pid %d) of container %s was killed, for %s was used up", k.Process, k.PID, k.Container, oomlimit.UsedUp(string(k.PodUID), k.System, k.Cgroup, k.Limit)),
	}, k.Time, key)
}
