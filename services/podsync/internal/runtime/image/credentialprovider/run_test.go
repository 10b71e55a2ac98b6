package credentialprovider

import (
	"slices"
	"testing"
)

func TestAPluginIsNotToldWhatTheSupervisorToldPodsync(t *testing.T) {
	got := withoutSystemd([]string{"PATH=/bin", "NOTIFY_SOCKET=/run/x", "LISTEN_PID=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=podsync", "WATCHDOG_USEC=1", "WATCHDOG_PID=1", "POLYLET_LIFELINE=5 1m0s", "AWS_REGION=x"})
	if !slices.Equal(got, []string{"PATH=/bin", "AWS_REGION=x"}) {
		t.Errorf("%q", got)
	}
}
