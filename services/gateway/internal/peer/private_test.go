package peer

import (
	"strings"
	"testing"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func TestAnEventOfAProbeIsShownWithoutWhatTheContainerSaid(t *testing.T) {
	const secret = "hunter2"
	said := map[string]bool{}
	for _, e := range []*podsyncv1.RecentEvent{
		{Kind: "Pod", Reason: "Unhealthy", Message: "Liveness probe failed: Get \"http://10.0.0.1/ok?token=" + secret + "\": refused"},
		{Kind: "Pod", Reason: "ProbeWarning", Message: "Readiness probe warning: " + secret},
		{Kind: "Pod", Reason: "Pulled", Message: "Container image: there"},
	} {
		message := messageOf(e)
		if strings.Contains(message, secret) || message == "" {
			t.Errorf("%s: %q", e.GetReason(), message)
		}
		said[message] = true
	}
	if len(said) != 3 || !said["Container image: there"] {
		t.Errorf("%v", said)
	}
}
