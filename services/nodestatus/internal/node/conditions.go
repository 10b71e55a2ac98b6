package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

const (
	// PeerGrace is how long a peer may be away before the Node says so. It is
	// the Node lease's length: a restart is never seen from outside.
	PeerGrace = 40 * time.Second
	// runtimeGrace is how long the runtime may give no answer.
	runtimeGrace = 30 * time.Second
	// listGrace is how long its containers may not be listed, though it answers.
	listGrace = 3 * time.Minute

	notChecked = "container runtime status check may not have completed yet"
)

// texts are the reasons, messages and events of a condition.
type texts struct {
	trueReason, trueMessage, trueEvent    string
	falseReason, falseMessage, falseEvent string
}

var pressureTexts = map[pressure.Kind]texts{
	pressure.Memory: {
		"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory",
		"KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory",
	},
	pressure.Disk: {
		"KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure",
		"KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure",
	},
	pressure.PID: {
		"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID",
		"KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID",
	},
}

// Event is something that happened to the Node.
type Event struct {
	// Type is Normal or Warning; Reason and Message are the Event's.
	Type, Reason, Message string
}

// setConditions sets the four conditions of node from facts, and returns the
// events of those that turned.
func setConditions(cfg Config, node *v1.Node, facts Facts, now time.Time) []Event {
	var events []Event
	for _, kind := range pressure.Kinds() {
		t := pressureTexts[kind]
		old := condition(node, v1.NodeConditionType(kind))
		under := facts.Pressure[kind]
		if facts.Pressure == nil && old != nil && old.Status != v1.ConditionUnknown {
			under = old.Status == v1.ConditionTrue // Nothing new is known.
		}
		c := v1.NodeCondition{Type: v1.NodeConditionType(kind), Status: v1.ConditionFalse, Reason: t.falseReason, Message: t.falseMessage}
		event := t.falseEvent
		if under {
			c.Status, c.Reason, c.Message, event = v1.ConditionTrue, t.trueReason, t.trueMessage, t.trueEvent
		}
		if turned := setCondition(node, c, now); turned {
			events = append(events, statusEvent(node.Name, event))
		}
	}
	old := condition(node, v1.NodeReady)
	ready, event := readyCondition(cfg, node, facts, old), "NodeNotReady"
	if ready.Status == v1.ConditionTrue {
		event = "NodeReady"
	}
	if turned := setCondition(node, ready, now); turned && old != nil {
		events = append(events, statusEvent(node.Name, event))
	}
	return events
}

func statusEvent(name, reason string) Event {
	return Event{v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", name, reason)}
}

// goesDown is said of a node whose machine does.
const goesDown = "node is shutting down"

func readyCondition(cfg Config, node *v1.Node, facts Facts, old *v1.NodeCondition) v1.NodeCondition {
	problems, known := judge(facts.Runtime)
	// Of a Node that is Ready it was looked at before it was: a restart flips nothing.
	var storage []string
	if facts.CSINode != "" && (old == nil || old.Status != v1.ConditionTrue) {
		storage = []string{facts.CSINode}
	}
	if known {
		problems = append(problems, storage...)
	}
	if missing := missingCapacity(cfg, node.Status.Capacity); missing != "" {
		problems, known = append(problems, missing), true
	}
	if facts.ShuttingDown || facts.ShutdownUnheard && old != nil && old.Status == v1.ConditionFalse && strings.Contains(old.Message, goesDown) {
		problems, known = append(problems, goesDown), true
	}
	switch {
	case !known && old != nil && old.Status != v1.ConditionUnknown:
		return *old // Within the grace nothing new is said.
	case !known:
		problems = append([]string{notChecked}, storage...)
	}
	if len(problems) == 0 {
		return v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	}
	message := problems[0]
	if len(problems) > 1 {
		message = "[" + strings.Join(problems, ", ") + "]"
	}
	return v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
}

// judge says what is wrong with the runtime. known is false while there are no
// facts that are new enough to say anything but what was said before.
func judge(r Runtime) (problems []string, known bool) {
	if r.Unanswered >= PeerGrace {
		if r.Err != "" {
			return []string{fmt.Sprintf("podsync, the process that holds the container runtime, has not answered for %s (%s); start it or look at its log",
				r.Unanswered.Round(time.Second), r.Err)}, true
		}
		return []string{notChecked}, true
	}
	if !r.Known {
		return nil, false
	}
	if r.Silence > runtimeGrace {
		return []string{"container runtime is down"}, true
	}
	if !r.Ready {
		// A podsync of before began with the condition's name.
		said := strings.TrimPrefix(r.Message, "RuntimeReady=false ")
		if !strings.HasPrefix(said, "reason:") {
			return nil, false // One call failed; the runtime has its grace.
		}
		problems = append(problems, "container runtime not ready: RuntimeReady=false "+said)
	}
	if r.Unlisted > listGrace {
		// In minutes, or the Node would be written each time.
		problems = append(problems, fmt.Sprintf("PLEG is not healthy: pleg was last seen active %s ago; threshold is %s (the container runtime answers, but its containers cannot be listed: look at its log)",
			r.Unlisted.Truncate(time.Minute), listGrace))
	}
	if !r.NetworkReady {
		text := "network state unknown"
		if r.NetworkMessage != "" {
			text = "container runtime network not ready: NetworkReady=false " + strings.TrimPrefix(r.NetworkMessage, "NetworkReady=false ")
		}
		problems = append(problems, text)
	}
	return problems, true
}

func missingCapacity(cfg Config, have v1.ResourceList) string {
	var missing []string
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods, v1.ResourceEphemeralStorage} {
		if _, ok := have[name]; !ok && (name != v1.ResourceEphemeralStorage || !cfg.NoLocalStorage) {
			missing = append(missing, string(name))
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return "missing node capacity for resources: " + strings.Join(missing, ", ")
}

func condition(node *v1.Node, kind v1.NodeConditionType) *v1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	c := node.Status.Conditions[i]
	return &c
}

// setCondition sets a condition with its times, and reports whether its status
// turned or it is new.
func setCondition(node *v1.Node, c v1.NodeCondition, now time.Time) (turned bool) {
	c.LastHeartbeatTime = metav1.NewTime(now)
	c.LastTransitionTime = c.LastHeartbeatTime
	i := slices.IndexFunc(node.Status.Conditions, func(x v1.NodeCondition) bool { return x.Type == c.Type })
	if i < 0 {
		node.Status.Conditions = append(node.Status.Conditions, c)
		return true
	}
	old := node.Status.Conditions[i]
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	node.Status.Conditions[i] = c
	return old.Status != c.Status
}

// Present returns the pressures that a Node says.
func Present(node *v1.Node) []pressure.Kind {
	var out []pressure.Kind
	for _, kind := range pressure.Kinds() {
		if c := condition(node, v1.NodeConditionType(kind)); c != nil && c.Status == v1.ConditionTrue {
			out = append(out, kind)
		}
	}
	return out
}

// Ready reports whether a Node is Ready.
func Ready(node *v1.Node) bool {
	c := condition(node, v1.NodeReady)
	return c != nil && c.Status == v1.ConditionTrue
}
