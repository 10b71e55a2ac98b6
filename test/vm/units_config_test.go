package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// missing is a little longer than services wait for a file.
	missing    = 12 * time.Second
	configFile = "/var/lib/kubelet/config.yaml"
	// stateFile is where handout says how the configuration stands.
	stateFile = "/run/polylet/nodestatus/config-state.json"
)

// TestTheConfigurationChangesUnderSystemdAndABadOneGoesBack edits the file of a node
// whose units are as they are shipped: handout owns the configuration, and each service
// ends by itself to be started again with what is its own.
func TestTheConfigurationChangesUnderSystemdAndABadOneGoesBack(t *testing.T) {
	apply(t, testPod("configured", "100m", "32Mi", "200m", "64Mi"))
	defer remove(t, "configured")
	before := ready(t, "configured")
	t.Cleanup(func() { configure(t, "") })
	eventually(t, "what was before is good", func() error { return stands("Good", "", 1) })
	generation, started := standing(t).Generation, processes(t)
	configure(t, "maxPods: 77\n")
	eventually(t, "maxPods changes", func() error { return stands("Good", "", generation+1) })
	for s, pid := range processes(t) {
		if owner := s == "podsync" || s == "nodestatus"; owner == (pid == started[s]) {
			t.Errorf("%s was process %s and is %s", s, started[s], pid)
		}
	}

	started = processes(t)
	configure(t, "maxPods: 77\npodLogsDir: /elsewhere\n")
	eventually(t, "what a running node cannot change is refused", func() error { return stands("Refused", "podLogsDir", 0) })
	owned := handedOut(t)
	for _, command := range [][]string{{"kill", "--signal=KILL"}, {"restart"}} {
		handout := property(t, "polylet-handout.service", "MainPID")
		if err := run("systemctl", append(command, "polylet-handout.service")...); err != nil {
			t.Fatal(err)
		}
		eventually(t, "handout is back", func() error {
			if now := property(t, "polylet-handout.service", "MainPID"); now == handout || now == "0" || property(t, "polylet-handout.service", "ActiveState") != "active" {
				return fmt.Errorf("its process is %s", now)
			}
			return stands("Refused", "podLogsDir", 0)
		})
		if now := processes(t); fmt.Sprint(now) != fmt.Sprint(started) {
			t.Errorf("after %v the processes were %v and are %v", command, started, now)
		}
		if now := handedOut(t); now != owned {
			t.Errorf("after %v there was\n%s\nand is\n%s", command, owned, now)
		}
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	configure(t, fmt.Sprintf("maxPods: 77\nhealthzPort: %d\n", taken.Addr().(*net.TCPAddr).Port))
	eventually(t, "what does not run goes back", func() error { return stands("WentBack", "healthzPort", 0) })
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })

	goesOn(t, before, "configured")
}

// TestKillsDuringAChangeLeaveTheNodeWithIt: the owner first, then services that are to
// start with it.
func TestKillsDuringAChangeLeaveTheNodeWithIt(t *testing.T) {
	apply(t, testPod("changed", "100m", "32Mi", "200m", "64Mi"))
	defer remove(t, "changed")
	before := ready(t, "changed")
	t.Cleanup(func() { configure(t, "") })
	eventually(t, "what was before is good", func() error { return stands("Good", "", 1) })
	generation := standing(t).Generation
	configure(t, "maxPods: 78\n")
	for _, unit := range []string{"handout", "podsync", "nodestatus"} {
		pause := rand.N(3 * time.Second)
		t.Logf("%s is killed after %s", unit, pause)
		time.Sleep(pause) // any moment of the change
		if err := run("systemctl", "kill", "--signal=KILL", "polylet-"+unit+".service"); err != nil {
			t.Log(err) // it is about to start, say
		}
	}
	eventually(t, "the change is good", func() error { return stands("Good", "", generation+1) })
	for _, s := range []string{"podsync", "nodestatus"} {
		out, err := exec.Command("/usr/bin/polylet", "config", "--service="+s, "-o", "json").Output()
		if err != nil || !regexp.MustCompile(`"maxPods": ?78\b`).Match(out) {
			t.Errorf("%s runs with %s, %v", s, out, err)
		}
	}
	goesOn(t, before, "changed")
}

// TestAConfigurationThatComesLateIsHandedToAll starts the services of a machine that is no
// node yet, as at a boot; the file comes when all of them wait for it.
func TestAConfigurationThatComesLateIsHandedToAll(t *testing.T) {
	apply(t, testPod("early", "100m", "32Mi", "200m", "64Mi"))
	defer remove(t, "early")
	before := ready(t, "early")
	units := []string{"polylet-handout.service"}
	for _, s := range services {
		units = append(units, "polylet-"+s+".service", "polylet-"+s+".socket")
	}
	if err := errors.Join(run("systemctl", append([]string{"stop"}, units...)...), os.Rename(configFile, configFile+".away")); err != nil {
		t.Fatal(err)
	}
	// A machine's start waits for theirs. It would for ever, if each waited for those
	// before it while they are started again and again.
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "systemctl", append([]string{"start"}, units...)...).CombinedOutput(); err != nil {
		t.Errorf("the start without a configuration: %v: %s", err, out)
	}
	t.Logf("the start without a configuration took %s", time.Since(began).Round(time.Second))
	time.Sleep(missing) // so that all have been started again
	for _, unit := range units {
		if n := property(t, unit, "NRestarts"); strings.HasSuffix(unit, ".service") && len(n) > 1 {
			t.Errorf("%s was started again %s times", unit, n)
		}
	}
	if err := os.Rename(configFile+".away", configFile); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each service has its own from handout", func() error {
		for _, s := range services {
			line, err := os.ReadFile("/proc/" + property(t, "polylet-"+s+".service", "MainPID") + "/cmdline")
			if err != nil || !strings.Contains(string(line), "--config-slice=/run/polylet/"+s+"/") {
				return fmt.Errorf("%s runs as %q, %v", s, line, err)
			}
			if state := property(t, "polylet-"+s+".service", "ActiveState"); state != "active" {
				return fmt.Errorf("%s is %s", s, state)
			}
		}
		return nil
	})
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
	goesOn(t, before, "early")
}

// goesOn fails unless a pod has not noticed anything since.
func goesOn(t *testing.T, before *corev1.Pod, name string) {
	t.Helper()
	after := ready(t, name)
	was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if was.ContainerID != is.ContainerID || is.RestartCount != 0 {
		t.Errorf("the container was %s, is %s after %d restarts", was.ContainerID, is.ContainerID, is.RestartCount)
	}
	if was, is := readyAt(before), readyAt(after); !was.Equal(&is) {
		t.Errorf("Ready since %s, was since %s", is, was)
	}
}

// handedOut is whose everything is in the services' directories.
func handedOut(t *testing.T) string {
	t.Helper()
	dirs := []string{}
	for _, s := range services {
		dirs = append(dirs, "/run/polylet/"+s)
	}
	out, err := exec.Command("find", append(dirs, "-printf", "%p %u %g %m\n")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
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

// state is how the configuration stands.
type state struct {
	Phase, Error string
	Generation   int
}

// standing is how it stands, and empty where that is not known.
func standing(t *testing.T) (now state) {
	t.Helper()
	raw, err := os.ReadFile(stateFile)
	if err == nil {
		err = json.Unmarshal(raw, &now)
	}
	if err != nil {
		t.Log(err)
	}
	return now
}

// stands fails unless the configuration stands like this; least is its generation.
func stands(phase, names string, least int) error {
	raw, err := os.ReadFile(stateFile)
	if err != nil {
		return err
	}
	var now state
	if err := json.Unmarshal(raw, &now); err != nil {
		return err
	}
	if now.Phase != phase || now.Generation < least || !strings.Contains(now.Error, names) {
		return errors.New(string(raw))
	}
	return nil
}
