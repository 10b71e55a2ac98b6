package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/supervise"
)

func systemdAnalyze(t *testing.T) string {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is not there; make setup installs it, and without it nothing checks the units")
		}
		t.Skip("systemd is not installed; make setup installs it")
	}
	return analyze
}

// TestTheUnitsAreValidForSystemd has systemd itself read the units, with this
// test's own program in the place of /usr/bin/polylet, which need not be there.
func TestTheUnitsAreValidForSystemd(t *testing.T) {
	analyze := systemdAnalyze(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../deploy/systemd/*.*")
	if err != nil {
		t.Fatal(err)
	}
	dir, units := t.TempDir(), []string{}
	for _, file := range files {
		switch filepath.Ext(file) {
		case ".slice", ".socket", ".service":
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			copied := filepath.Join(dir, filepath.Base(file))
			text := strings.ReplaceAll(string(raw), "/usr/bin/polylet ", self+" ")
			if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			units = append(units, copied)
		}
	}
	if len(units) < 12 {
		t.Fatalf("only %d units", len(units))
	}
	cmd := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, units...)...)
	raw, err := cmd.CombinedOutput()
	// systemd before 254 knows no restarts that become rarer, and says so.
	out := regexp.MustCompile(`(?m)^.*Unknown key( name)? 'Restart(Steps|MaxDelaySec)' in section .*, ignoring\.$`).ReplaceAllString(string(raw), "")
	if err != nil || len(strings.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestAServiceThatCannotStartIsStartedAgainEverLater: each start of one logs its whole
// error, and asks the apiserver for all again.
func TestAServiceThatCannotStartIsStartedAgainEverLater(t *testing.T) {
	for _, name := range append(service.All(), handoutName) {
		u, longest := unitOf(t, name), time.Second
		if name == handoutName { // nobody waits for it
			longest = 10 * time.Second
		}
		first, err := time.ParseDuration(u.one("RestartSec"))
		most, err2 := time.ParseDuration(u.one("RestartMaxDelaySec"))
		steps, err3 := strconv.Atoi(u.one("RestartSteps"))
		if err := errors.Join(err, err2, err3); err != nil || first > time.Second || most != longest || steps < 4 {
			t.Errorf("%s is started again after %v, in %d steps after %v; %v", name, first, steps, most, err)
		}
		if u.one("Restart") != "always" || u.one("StartLimitIntervalSec") != "0" {
			t.Errorf("%s is given up: %q, %q", name, u.one("Restart"), u.one("StartLimitIntervalSec"))
		}
	}
}

// TestEveryUnitStartsACommandThatExists reads the command lines.
func TestEveryUnitStartsACommandThatExists(t *testing.T) {
	files, err := filepath.Glob("../../deploy/systemd/polylet-*.service")
	if err != nil || len(files) != 6 {
		t.Fatalf("%d services, %v", len(files), err)
	}
	have := map[string]bool{}
	for _, c := range newRootCommand().Commands() {
		have[c.Name()] = true
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, ok := strings.Cut(string(raw), "ExecStart=/usr/bin/polylet ")
		command, _, _ := strings.Cut(rest, " ")
		if !ok || !have[command] || filepath.Base(file) != "polylet-"+command+".service" {
			t.Errorf("%s starts %q", file, command)
		}
	}
}

// TestSystemdFindsTheUnitsHardened has systemd judge the files: 0 is best, 10
// worst. test/vm asks it of the units that run.
func TestSystemdFindsTheUnitsHardened(t *testing.T) {
	analyze := systemdAnalyze(t)
	for service, limit := range map[string]float64{"gateway": 1.5, "probes": 1.5, "nodestatus": 2.5, "stats": 3.3, "handout": 4, "podsync": 5.3} {
		unit := "../../deploy/systemd/polylet-" + service + ".service"
		out, err := exec.CommandContext(t.Context(), analyze, "security", "--no-pager", "--offline=true", unit).CombinedOutput()
		if err != nil {
			t.Fatalf("systemd-analyze: %v: %s", err, out)
		}
		found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if found == nil {
			t.Fatalf("no exposure level in %s", out)
		}
		if exposure, err := strconv.ParseFloat(string(found[1]), 64); err != nil || exposure > limit {
			t.Errorf("exposure of %s is %s, more than %.1f:\n%s", service, found[1], limit, out)
		}
	}
}

// TestNoUnitWithoutRootReachesIntoOtherProcesses: @system-service lets a process
// write into the memory of others, which with CAP_SYS_PTRACE are podsync, too.
func TestNoUnitWithoutRootReachesIntoOtherProcesses(t *testing.T) {
	for _, name := range service.Separate() {
		filters := unitOf(t, name)["SystemCallFilter"]
		refused := strings.Fields(strings.TrimPrefix(filters[len(filters)-1], "~"))
		for _, call := range []string{"@debug", "process_vm_readv", "process_vm_writev", "process_madvise"} {
			if !strings.HasPrefix(filters[len(filters)-1], "~") || !slices.Contains(refused, call) {
				t.Errorf("the unit of %s does not refuse %s: %q", name, call, filters)
			}
		}
		// stats tells with it which threads have the same open files.
		if slices.Contains(refused, "kcmp") == (name == "stats") {
			t.Errorf("the unit of %s and kcmp: %q", name, filters)
		}
	}
}

// TestEveryServiceIsBoundedWhereverItRuns: what measures, probes and answers
// strangers must not become what is to be measured. podsync grows with its pods.
func TestEveryServiceIsBoundedWhereverItRuns(t *testing.T) {
	bounds := map[string]struct{ max, runtime string }{
		"gateway": {"512M", "400MiB"}, "probes": {"256M", "200MiB"}, "stats": {"256M", "200MiB"}, "nodestatus": {"256M", "200MiB"},
	}
	containers := composeServices(t)
	for service, bound := range bounds {
		unit := unitOf(t, service)
		if unit.one("MemoryMax") != bound.max || !slices.Contains(unit["Environment"], "GOMEMLIMIT="+bound.runtime) {
			t.Errorf("the unit of %s has MemoryMax %q and %q", service, unit.one("MemoryMax"), unit["Environment"])
		}
		c := containers[service]
		if !strings.EqualFold(c.MemLimit, bound.max) || !slices.Contains(c.Environment, "GOMEMLIMIT="+bound.runtime) {
			t.Errorf("the container of %s has mem_limit %q and %q", service, c.MemLimit, c.Environment)
		}
	}
	if cpu := unitOf(t, "stats").one("CPUQuota"); cpu != "100%" || containers["stats"].CPUs != 1 {
		t.Errorf("stats has CPUQuota %q and %v cpus", cpu, containers["stats"].CPUs)
	}
	if unitOf(t, "handout").one("MemoryMax") == "" {
		t.Error("handout is not bounded")
	}
}

// TestTheKernelKillsPodsBeforeTheNodesOwnProcesses: without a score of its own a process
// that has much memory is what it chooses when the machine has none left. Containers of
// Guaranteed pods have -997.
func TestTheKernelKillsPodsBeforeTheNodesOwnProcesses(t *testing.T) {
	for _, name := range append(service.All(), handoutName) {
		if score, err := strconv.Atoi(unitOf(t, name).one("OOMScoreAdjust")); err != nil || score > -999 {
			t.Errorf("the unit of %s has OOMScoreAdjust %d, %v", name, score, err)
		}
	}
}

// TestPodsyncsUnitMayMoveProcessesOfTheMachine: systemCgroups is a setting of the kubelet's,
// whose unit has all of root's rights.
func TestPodsyncsUnitMayMoveProcessesOfTheMachine(t *testing.T) {
	if rights := strings.Fields(unitOf(t, "podsync").one("CapabilityBoundingSet")); !slices.Contains(rights, "CAP_SYS_NICE") {
		t.Errorf("it has %v", rights)
	}
}

// TestPodsyncMayRemoveWhatPodsHaveMadeImmutable, in the unit and in compose.
func TestPodsyncMayRemoveWhatPodsHaveMadeImmutable(t *testing.T) {
	unit, compose := strings.Fields(unitOf(t, "podsync").one("CapabilityBoundingSet")), composeServices(t)["podsync"].CapAdd
	if !slices.Contains(unit, "CAP_LINUX_IMMUTABLE") || !slices.Contains(compose, "LINUX_IMMUTABLE") {
		t.Errorf("the unit has %v, the container %v", unit, compose)
	}
}

// TestAStopOfPodsyncEndsNoProgramThatMakesAFilesystem: systemd would else end all that is in
// the unit, and what is half made is no filesystem. What else podsync has started ends with
// it, or soon.
func TestAStopOfPodsyncEndsNoProgramThatMakesAFilesystem(t *testing.T) {
	if mode := unitOf(t, "podsync").one("KillMode"); mode != "process" {
		t.Errorf("its KillMode is %q", mode)
	}
}

// unit is a unit file: the values of each setting.
type unit map[string][]string

// one is a setting's last value.
func (u unit) one(name string) string {
	if values := u[name]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

func unitOf(t *testing.T, service string) unit {
	t.Helper()
	return readUnit(t, "polylet-"+service+".service")
}

// readUnit reads files of units, a unit and its drop-ins, say.
func readUnit(t *testing.T, files ...string) unit {
	t.Helper()
	var raw []byte
	for _, file := range files {
		text, err := os.ReadFile("../../deploy/systemd/" + file)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(append(raw, text...), '\n')
	}
	out := unit{}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			out[name] = append(out[name], value)
		}
	}
	return out
}

// TestTheUnitKubeletStandsForAllServices: kubeadm starts, stops and restarts one
// unit, and asks whether that is active.
func TestTheUnitKubeletStandsForAllServices(t *testing.T) {
	kubelet := readUnit(t, "kubelet.service")
	for _, of := range append(service.All(), handoutName) {
		name, own := "polylet-"+of+".service", unitOf(t, of)
		if !slices.Contains(strings.Fields(kubelet.one("Wants")), name) {
			t.Errorf("a start of kubelet.service does not start %s", name)
		}
		if !slices.Contains(own["PartOf"], "kubelet.service") {
			t.Errorf("a stop or restart of kubelet.service does not stop or restart %s", name)
		}
		if !slices.Contains(strings.Fields(kubelet.one("Before")), name) {
			t.Errorf("a stop of kubelet.service does not wait for that of %s", name)
		}
	}
	// Whoever calls a socket that stays would have a stopped service started again.
	for _, name := range service.All() {
		socket := readUnit(t, "polylet-"+name+".socket")
		if !slices.Contains(strings.Fields(strings.Join(socket["PartOf"], " ")), "kubelet.service") {
			t.Errorf("a stop of kubelet.service does not stop polylet-%s.socket", name)
		}
		if !slices.Contains(strings.Fields(unitOf(t, name).one("Wants")), "polylet-"+name+".socket") {
			t.Errorf("a start of polylet-%s.service does not start its socket", name)
		}
	}
	if kubelet.one("RemainAfterExit") != "yes" || kubelet.one("Type") != "oneshot" {
		t.Error("kubelet.service is not active while the services are")
	}
}

// kubeadmsDropIn is what kubeadm's package puts beside kubelet.service.
const kubeadmsDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`

// TestTheUnitsReadWhatKubeadmWrites: with kubeadm's drop-in or without it, the
// services have the flags and files, and no second agent is started.
func TestTheUnitsReadWhatKubeadmWrites(t *testing.T) {
	dir := "../../deploy/systemd/kubelet.service.d"
	drops, err := os.ReadDir(dir)
	if err != nil || len(drops) != 1 || drops[0].Name() <= "10-kubeadm.conf" {
		t.Fatalf("%v, %v: ours comes after kubeadm's", drops, err)
	}
	ours := readUnit(t, "kubelet.service.d/"+drops[0].Name())
	if !slices.Equal(ours["ExecStart"], []string{"", "/usr/bin/true"}) {
		t.Errorf("kubeadm's command is not taken back: %q", ours["ExecStart"])
	}
	for _, service := range []string{"podsync", "stats", "nodestatus", "handout"} {
		own := unitOf(t, service)
		for _, line := range strings.Split(kubeadmsDropIn, "\n") {
			name, value, _ := strings.Cut(line, "=")
			if name == "EnvironmentFile" && !slices.Contains(own[name], value) {
				t.Errorf("the unit of %s does not read %s", service, value)
			}
		}
		for _, variable := range []string{"$KUBELET_KUBECONFIG_ARGS", "$KUBELET_CONFIG_ARGS", "$KUBELET_KUBEADM_ARGS", "$KUBELET_EXTRA_ARGS"} {
			if !slices.Contains(strings.Fields(own.one("ExecStart")), variable) {
				t.Errorf("the unit of %s does not pass %s on", service, variable)
			}
		}
	}
}

// container is what compose.yaml says of a service, as far as it is looked at.
type container struct {
	Command     []string `json:"command"`
	User        string   `json:"user"`
	PID         string   `json:"pid"`
	ReadOnly    bool     `json:"read_only"`
	CapDrop     []string `json:"cap_drop"`
	CapAdd      []string `json:"cap_add"`
	SecurityOpt []string `json:"security_opt"`
	Volumes     []string `json:"volumes"`
	Tmpfs       []string `json:"tmpfs"`
	Environment []string `json:"environment"`
	MemLimit    string   `json:"mem_limit"`
	CPUs        float64  `json:"cpus"`
}

// ids are the user and group that a container's service has in the end: one
// that starts as root gives that up by itself.
func (c container) ids(t *testing.T) (uid, gid string) {
	t.Helper()
	if c.Command[0] != launchCommand {
		uid, gid, _ = strings.Cut(c.User, ":")
		return uid, gid
	}
	var plan struct{ Identity supervise.Identity }
	if err := json.Unmarshal([]byte(c.Command[1]), &plan); err != nil || !plan.Identity.Drop || c.Command[2] != "--" {
		t.Fatalf("%q: %v", c.Command, err)
	}
	return strconv.Itoa(plan.Identity.UID), strconv.Itoa(plan.Identity.GID)
}

func composeServices(t *testing.T) map[string]container {
	t.Helper()
	raw, err := os.ReadFile("../../deploy/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]container `json:"services"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != len(service.All())+1 { // handout is one
		t.Fatalf("compose has %d services", len(file.Services))
	}
	return file.Services
}

// TestNoTwoServicesShareAUser, in the units and in compose, nor have a number
// that images use, as a user or as the sockets' group.
func TestNoTwoServicesShareAUser(t *testing.T) {
	containers := composeServices(t)
	units, numbers := map[string]string{}, map[string]string{}
	for _, name := range service.Separate() {
		if user := unitOf(t, name).one("User"); user != "polylet-"+name || units[user] != "" {
			t.Errorf("the unit of %s runs as %q", name, user)
		} else {
			units[user] = name
		}
		uid, gid := containers[name].ids(t)
		if numbers[uid] != "" || slices.Contains(ofImages(), uid) || slices.Contains(ofImages(), gid) || uid == gid {
			t.Errorf("the container of %s runs as %s:%s, beside %v", name, uid, gid, numbers)
		}
		numbers[uid] = name
		for _, other := range service.All() {
			if flag := "--" + name + "-user=" + uid; !slices.Contains(containers[other].Command, flag) {
				t.Errorf("the container of %s does not know %s: %q", other, flag, containers[other].Command)
			}
		}
	}
	if user := unitOf(t, "podsync").one("User"); user != "" || containers["podsync"].User != "" && !strings.HasPrefix(containers["podsync"].User, "0:") {
		t.Errorf("podsync runs as %q and %q", user, containers["podsync"].User)
	}
}

// TestTheContainersAreAsStrictAsTheUnits compares capabilities, and looks who
// may put a socket where.
func TestTheContainersAreAsStrictAsTheUnits(t *testing.T) {
	for service, c := range composeServices(t) {
		allowed := strings.Fields(strings.ReplaceAll(unitOf(t, service).one("CapabilityBoundingSet"), "CAP_", ""))
		if c.Command[0] == launchCommand {
			allowed = append(allowed, "SETUID", "SETGID", "SETPCAP") // to give root up
		}
		for _, capability := range c.CapAdd {
			if !slices.Contains(allowed, capability) {
				t.Errorf("the container of %s has %s, its unit does not", service, capability)
			}
		}
		if !slices.Equal(c.CapDrop, []string{"ALL"}) || !slices.Contains(c.SecurityOpt, "no-new-privileges:true") || !c.ReadOnly {
			t.Errorf("%s: cap_drop %q, security_opt %q, read_only %v", service, c.CapDrop, c.SecurityOpt, c.ReadOnly)
		}
		for _, volume := range c.Volumes {
			to, writable := strings.Split(volume, ":")[1], !slices.ContainsFunc(strings.Split(volume, ":")[2:], func(o string) bool { return strings.HasPrefix(o, "ro") })
			handsOut := service == "handout" && !strings.HasSuffix(to, ".d")
			if strings.HasPrefix(to, "/run/polylet") && writable != (to == "/run/polylet/"+service+".d" || handsOut) {
				t.Errorf("%s may write to %s: %v", service, to, writable)
			}
			if to == "/sys" && writable {
				t.Errorf("%s may write to all of /sys", service)
			}
			if service == "stats" && strings.HasPrefix(volume, "${CONTAINERD_IMAGES:-") {
				// The folder alone, by which its disk is measured: what is in it is covered.
				path := volume[:strings.Index(volume, "}")+1]
				if writable || volume != path+":"+path+":ro" || len(c.Tmpfs) != 1 || !strings.HasPrefix(c.Tmpfs[0], path+"/snapshots:ro,") {
					t.Errorf("stats has %s, covered by %q", volume, c.Tmpfs)
				}
				continue
			}
			if service != "podsync" && strings.Contains(volume, "containerd") {
				t.Errorf("%s has %s", service, volume)
			}
		}
	}
}
