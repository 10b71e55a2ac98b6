package vm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/images"
)

func TestTheFiveUnitsRunInTheirSliceAndTheNodeIsHealthy(t *testing.T) {
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
	for _, s := range services {
		unit := "polylet-" + s + ".service"
		if got := property(t, unit, "ActiveState"); got != "active" {
			t.Errorf("%s is %s", unit, got)
		}
		if got := property(t, unit, "Slice"); got != "polylet.slice" {
			t.Errorf("%s runs in %s", unit, got)
		}
		if s == "stats" && (property(t, unit, "MemoryMax") != "268435456" || property(t, unit, "CPUQuotaPerSecUSec") != "1s") {
			t.Errorf("%s is bounded by %s bytes and %s of CPU a second", unit, property(t, unit, "MemoryMax"), property(t, unit, "CPUQuotaPerSecUSec"))
		}
		if got := property(t, unit, "NRestarts"); got != "0" {
			t.Errorf("%s was restarted %s times", unit, got)
		}
	}
}

// TestTheUnitKubeletStartsAndStopsAllServices does what kubeadm does, with
// kubeadm's drop-in beside.
func TestTheUnitKubeletStartsAndStopsAllServices(t *testing.T) {
	const dropIn = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf"
	if err := write(dropIn, "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --no-such-flag\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(dropIn)) })
	states := func(want string) error {
		for _, unit := range append(slices.Clone(services), "handout") {
			if got := property(t, "polylet-"+unit+".service", "ActiveState"); got != want {
				return fmt.Errorf("%s is %s", unit, got)
			}
		}
		return nil
	}
	for _, command := range [][]string{{"daemon-reload"}, {"start", "kubelet"}, {"is-active", "kubelet"}} {
		if err := run("systemctl", command...); err != nil {
			t.Fatal(err)
		}
	}
	pid := property(t, "polylet-podsync.service", "MainPID")
	if err := run("systemctl", "restart", "kubelet"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are active after a restart", func() error { return states("active") })
	if now := property(t, "polylet-podsync.service", "MainPID"); now == pid {
		t.Errorf("podsync was not restarted")
	}
	if err := run("systemctl", "stop", "kubelet"); err != nil {
		t.Fatal(err)
	}
	if err := states("inactive"); err != nil {
		t.Errorf("after the stop %v", err)
	}
	if err := run("systemctl", "is-active", "kubelet"); err == nil {
		t.Error("the unit is active after its stop")
	}
	eventually(t, "no socket is left", func() error {
		for _, s := range services {
			if got := property(t, "polylet-"+s+".socket", "ActiveState"); got != "inactive" {
				return fmt.Errorf("%s is %s", s, got)
			}
		}
		return nil
	})
	if err := run("/usr/bin/polylet", "status"); err == nil {
		t.Error("polylet status finds a node that runs")
	}
	if err := states("inactive"); err != nil {
		t.Errorf("after somebody asked for the status %v", err)
	}
	if err := run("systemctl", "start", "kubelet"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are active again", func() error { return states("active") })
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
}

// TestWhatReadsTheHostCannotReachTheRuntime tries it as the processes of stats
// and nodestatus: in their mount namespace, with their user and capabilities.
func TestWhatReadsTheHostCannotReachTheRuntime(t *testing.T) {
	const socket = "/run/containerd/containerd.sock"
	if err := run("env", dialVariable+"="+socket, os.Args[0]); err != nil {
		t.Fatalf("not even this test may connect to the runtime, so that nothing is shown: %v", err)
	}
	for s, capabilities := range map[string]string{"stats": "+dac_read_search,+sys_ptrace", "nodestatus": "+dac_read_search"} {
		pid := property(t, "polylet-"+s+".service", "MainPID")
		data, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if err != nil {
			t.Fatal(err)
		}
		if uid := regexp.MustCompile(`(?m)^Uid:\t(\d+)`).FindStringSubmatch(string(data)); uid == nil || uid[1] == "0" {
			t.Errorf("%s runs as user %v", s, uid)
		}
		as := func(command ...string) error {
			return run("nsenter", append([]string{
				"--mount=/proc/" + pid + "/ns/mnt", "--no-fork", "setpriv", "--reuid", "polylet-" + s, "--regid", "polylet-" + s, "--clear-groups",
				"--inh-caps", "-all," + capabilities, "--ambient-caps", "-all," + capabilities, "--bounding-set", "-all," + capabilities,
			}, command...)...)
		}
		// Really read and really connected: access(2), and so test -r, asks what the
		// user may without its capabilities.
		if err := as("head", "-c", "1", "/etc/shadow"); err != nil {
			t.Errorf("%s cannot even read, so that nothing is shown: %v", s, err)
		}
		for _, path := range []string{socket, "/proc/1/root" + socket} {
			if err := as("env", dialVariable+"="+path, os.Args[0]); err == nil || !strings.Contains(err.Error(), "dial unix") {
				t.Errorf("%s connects to the runtime through %s: %v", s, path, err)
			}
		}
	}
}

func TestWhatFacesTheNetworkHasNoPrivilege(t *testing.T) {
	for _, s := range []string{"gateway", "probes"} {
		pid := property(t, "polylet-"+s+".service", "MainPID")
		data, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if err != nil {
			t.Fatal(err)
		}
		status := string(data)
		if uid := regexp.MustCompile(`(?m)^Uid:\t(\d+)`).FindStringSubmatch(status); uid == nil || uid[1] == "0" {
			t.Errorf("%s runs as user %v", s, uid)
		}
		for _, set := range []string{"CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if !strings.Contains(status, set+":\t0000000000000000\n") {
				t.Errorf("%s has capabilities in %s:\n%s", s, set, status)
			}
		}
		for _, part := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
			if !strings.Contains(status, part) {
				t.Errorf("%s: %q is not in\n%s", s, part, status)
			}
		}
		for _, hidden := range []string{"/run/containerd/containerd.sock", "/var/lib/kubelet/config.yaml"} {
			if _, err := os.Stat(filepath.Join("/proc", pid, "root", hidden)); err == nil {
				// The file is there for root; the process's own user must not reach it.
				if err := run("setpriv", "--reuid", "polylet-"+s, "--clear-groups", "nsenter", "--mount=/proc/"+pid+"/ns/mnt", "--no-fork", "cat", hidden); err == nil {
					t.Errorf("%s can read %s", s, hidden)
				}
			}
		}
	}
}

// exposure is what systemd says of a unit: 0 is best, 10 worst. The limits are a
// little above what was seen, so that a setting that gets lost is noticed.
func TestSystemdFindsTheUnitsHardened(t *testing.T) {
	for s, limit := range map[string]float64{"gateway": 1.5, "probes": 1.5, "stats": 3.3, "nodestatus": 2.5, "handout": 4, "podsync": 5.3} {
		out, err := exec.Command("systemd-analyze", "security", "--no-pager", "polylet-"+s+".service").CombinedOutput()
		if err != nil {
			t.Fatalf("systemd-analyze: %v: %s", err, out)
		}
		found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if found == nil {
			t.Fatalf("no exposure level in %s", out)
		}
		exposure, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("exposure of %s: %.1f", s, exposure)
		if exposure > limit {
			t.Errorf("exposure of %s is %.1f, more than %.1f:\n%s", s, exposure, limit, out)
		}
	}
}

func TestAKilledProcessIsBackAndNoContainerNotices(t *testing.T) {
	apply(t, testPod("steady", "100m", "32Mi", "200m", "64Mi"))
	defer remove(t, "steady")
	before := ready(t, "steady")
	order := append(append([]string{}, services...), services...)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	t.Log("order of the kills:", order)
	for _, s := range order {
		unit := "polylet-" + s + ".service"
		pid := property(t, unit, "MainPID")
		if err := run("systemctl", "kill", "--signal=KILL", unit); err != nil {
			t.Fatal(err)
		}
		eventually(t, unit+" back", func() error {
			if now := property(t, unit, "MainPID"); now == pid || now == "0" {
				return fmt.Errorf("its process is %s, it was %s", now, pid)
			}
			if state := property(t, unit, "ActiveState"); state != "active" {
				return errors.New(state)
			}
			return nil
		})
	}
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
	after := ready(t, "steady")
	was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if was.ContainerID != is.ContainerID || is.RestartCount != 0 {
		t.Errorf("the container was %s, is %s after %d restarts", was.ContainerID, is.ContainerID, is.RestartCount)
	}
	if was, is := readyAt(before), readyAt(after); !was.Equal(&is) {
		t.Errorf("Ready since %s, was since %s", is, was)
	}
}

func readyAt(p *corev1.Pod) metav1.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

// testPod sleeps with these resources; an empty one is left out.
func testPod(name, cpuRequest, memoryRequest, cpuLimit, memoryLimit string) corev1.Pod {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	grace := int64(1)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "app", Image: images.TestApp, Args: []string{"sleep"},
				Resources: corev1.ResourceRequirements{Requests: list(cpuRequest, memoryRequest), Limits: list(cpuLimit, memoryLimit)},
			}},
		},
	}
}
