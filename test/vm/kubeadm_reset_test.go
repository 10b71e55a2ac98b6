package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// assertReset has kubeadm undo everything. systemd still listens in the services'
// place, as docs/kubeadm.md says, until it is told not to.
func assertReset(t *testing.T) {
	out, err := kubeadmRun(t, "reset", "--force")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "The kubelet service could not be stopped") {
		t.Error("the kubelet could not be stopped")
	}
	if left := ours(t); len(left) > 0 {
		t.Errorf("processes are left:\n%s", strings.Join(left, "\n"))
	}
	for _, line := range newlyListening(t) {
		if !regexp.MustCompile(` /run/polylet/(podsync|probes|stats|nodestatus|gateway)\.sock .*"systemd"`).MatchString(line) {
			t.Errorf("somebody still listens: %s", line)
		}
	}
	if err := run("systemctl", "stop", "polylet-*.socket"); err != nil {
		t.Fatal(err)
	}
	if left := newlyListening(t); len(left) > 0 {
		t.Errorf("somebody still listens:\n%s", strings.Join(left, "\n"))
	}
	for _, dir := range []string{"/etc/kubernetes/manifests", "/var/lib/kubelet", "/var/lib/etcd"} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) || len(entries) > 0 {
			t.Errorf("%s has something left: %v, %v", dir, entries, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), " /var/lib/kubelet/") {
		t.Errorf("mounts are left: %v\n%s", err, mounts)
	}
}

// ours are the command lines of what polylet's services and pods consist of.
func ours(t *testing.T) (found []string) {
	t.Helper()
	for _, name := range append([]string{"polylet", "kubelet", "kube-proxy", "coredns", "pause", "testapp", "containerd-shim-runc-v2"}, controlPlane...) {
		pids, err := pidsOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			found = append(found, fmt.Sprintf("%s, process %d", name, pid))
		}
	}
	return found
}

// listenedBefore are the addresses at which somebody listens on the machine without polylet.
var listenedBefore []string

// listening are the lines of ss about the addresses at which somebody listens now, by
// the address. Sockets without one are no matter: nobody can reach them.
func listening() (map[string]string, error) {
	out, err := exec.CommandContext(context.Background(), "ss", "-Hlxtunp").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ss: %w %s", err, out)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] != "*" {
			found[fields[0]+" "+fields[4]] = strings.Join(fields, " ")
		}
	}
	if _, ok := found["u_str "+"/run/containerd/containerd.sock"]; !ok {
		return nil, fmt.Errorf("not even the runtime listens, so that nothing is shown:\n%s", out)
	}
	return found, nil
}

// newlyListening are the lines that were not there before polylet was.
func newlyListening(t *testing.T) (lines []string) {
	t.Helper()
	found, err := listening()
	if err != nil {
		t.Fatal(err)
	}
	for address, line := range found {
		if !slices.Contains(listenedBefore, address) {
			lines = append(lines, line)
		}
	}
	return lines
}
