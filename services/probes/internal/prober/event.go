package prober

import (
	"strings"
	"unicode/utf8"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// eventOf returns the event that an attempt is worth, in the kubelet's words.
func eventOf(t probe.Target, a probe.Answer) (probe.Event, bool) {
	e := probe.Event{Key: t.Key, Namespace: t.Namespace, Name: t.Name, Reason: probe.ReasonUnhealthy}
	switch a.Verdict {
	case probe.Failed:
		e.Message = t.Key.Type.String() + " probe failed: " + a.Message
	case probe.Errored:
		e.Message = t.Key.Type.String() + " probe errored and resulted in unknown state: " + a.Message
	case probe.Warned:
		e.Reason = probe.ReasonWarning
		e.Message = t.Key.Type.String() + " probe warning: " + a.Message
	default:
		return probe.Event{}, false
	}
	e.Message = clip(e.Message)
	return e, true
}

// clip bounds a message and makes it valid UTF-8, which protobuf demands.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= probe.MessageLimit {
		return s
	}
	s = s[:probe.MessageLimit]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
