package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

const configFile = "/var/lib/kubelet/config.yaml"

// TestTheConfigurationChangesUnderSystemdAndABadOneGoesBack edits the file of a node
// whose units are as they are shipped: handout owns the configuration, and each service
// ends by itself to be started again with what is its own.
func TestTheConfigurationChangesUnderSystemdAndABadOneGoesBack(t *testing.T) {
	apply(t, testPod("configured", "100m", "32Mi", "200m", "64Mi"))
	defer remove(t, "configured")
	before := ready(t, "configured")
	t.Cleanup(func() { configure(t, "") })
	started := processes(t)
	configure(t, "maxPods: 77\n")
	eventually(t, "maxPods changes", func() error { return stands("Good", "", 2) })
	for s, pid := range processes(t) {
		if owner := s == "podsync" || s == "nodestatus"; owner == (pid == started[s]) {
			t.Errorf("%s was process %s and is %s", s, started[s], pid)
		}
	}

	started = processes(t)
	configure(t, "maxPods: 77\npodLogsDir: /elsewhere\n")
	eventually(t, "what a running node cannot change is refused", func() error { return stands("Refused", "podLogsDir", 0) })
	handout := property(t, "polylet-handout.service", "MainPID")
	if err := run("systemctl", "kill", "--signal=KILL", "polylet-handout.service"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "handout is back", func() error {
		if now := property(t, "polylet-handout.service", "MainPID"); now == handout || now == "0" || property(t, "polylet-handout.service", "ActiveState") != "active" {
			return fmt.Errorf("its process is %s", now)
		}
		return stands("Refused", "podLogsDir", 0)
	})
	if now := processes(t); fmt.Sprint(now) != fmt.Sprint(started) {
		t.Errorf("the processes were %v and are %v", started, now)
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	configure(t, fmt.Sprintf("maxPods: 77\nhealthzPort: %d\n", taken.Addr().(*net.TCPAddr).Port))
	eventually(t, "what does not run goes back", func() error { return stands("WentBack", "healthzPort", 0) })
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })

	after := ready(t, "configured")
	was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if was.ContainerID != is.ContainerID || is.RestartCount != 0 {
		t.Errorf("the container was %s, is %s after %d restarts", was.ContainerID, is.ContainerID, is.RestartCount)
	}
	if was, is := readyAt(before), readyAt(after); !was.Equal(&is) {
		t.Errorf("Ready since %s, was since %s", is, was)
	}
}

// configure writes the machine's configuration with more fields, in one step.
func configure(t *testing.T, more string) {
	t.Helper()
	err := write(configFile+".new", configuration("systemd")+more)
	if err == nil {
		err = os.Rename(configFile+".new", configFile)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// processes are those of the services, by name.
func processes(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, s := range services {
		out[s] = property(t, "polylet-"+s+".service", "MainPID")
	}
	return out
}

// stands fails unless the configuration stands like this; least is its generation.
func stands(phase, names string, least int) error {
	raw, err := os.ReadFile("/run/polylet/nodestatus/config-state.json")
	if err != nil {
		return err
	}
	var state struct {
		Phase, Error string
		Generation   int
	}
	if err := json.Unmarshal(raw, &state); err != nil {
		return err
	}
	if state.Phase != phase || state.Generation < least || !strings.Contains(state.Error, names) {
		return errors.New(string(raw))
	}
	return nil
}
