package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// noServer is where nobody listens, and deadServer where nobody is.
const noServer, deadServer = "127.0.0.2", "127.0.0.3"

// firewall adds or deletes rules for what is sent to the server, and by it; to end is -D.
func firewall(do string, rules ...string) error {
	var errs []error
	for _, r := range rules {
		errs = append(errs, run("iptables", append([]string{"-w", do, "INPUT", "-i", "lo", "-p", "tcp"}, strings.Fields(r)...)...))
	}
	return errors.Join(errs...)
}

// goesSilent has the server say nothing and hear nothing any more, and no server be there at
// another address, until speaks is called.
func goesSilent(t *testing.T) (speaks func()) {
	t.Helper()
	rules := []string{
		"--dport 2049 -d " + nfsServer + " -j DROP", "--sport 2049 -s " + nfsServer + " -j DROP",
		"--dport 2049 -d " + noServer + " -j REJECT --reject-with tcp-reset", "--dport 2049 -d " + deadServer + " -j DROP",
	}
	silent := true
	speaks = func() {
		t.Helper()
		if silent {
			silent = false
			if err := firewall("-D", rules...); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(speaks)
	if err := firewall("-I", rules...); err != nil {
		t.Fatal(err)
	}
	return speaks
}

// passes starts a pod that has nothing to do with any server, and ends it; it took so much of
// the machine's work.
func passes(t *testing.T, name string) (took time.Duration) {
	t.Helper()
	began := worked()
	apply(t, testPod(name, "", "", "", ""))
	ready(t, name)
	remove(t, name)
	return worked() - began
}

// passesAsEver wants that it takes no longer than it did, give or take.
func passesAsEver(t *testing.T, when, name string, usual time.Duration) {
	t.Helper()
	took := passes(t, name)
	t.Logf("%s another pod starts and is gone within %s of work, usually %s", when, took.Round(time.Second), usual.Round(time.Second))
	if took > 2*usual+5*time.Second {
		t.Errorf("%s another pod takes %s, usually %s", when, took, usual)
	}
}

// answers wants that the node does.
func answers(t *testing.T, when string) {
	t.Helper()
	for _, url := range []string{healthz, readOnly + "/pods", readOnly + "/stats/summary", readOnly + "/metrics", readOnly + "/metrics/cadvisor", readOnly + "/metrics/resource"} {
		began := time.Now()
		_, err := get(url)
		if took := time.Since(began); err != nil || took > 30*time.Second {
			t.Errorf("%s %s: after %s: %v", when, url, took, err)
		}
	}
}

// explained is what polylet says of a pod of this node.
func explained(name string) string {
	out, err := exec.Command("/usr/bin/polylet", "explain", "default/"+name+"-"+node).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// says wants words in what polylet says of a pod.
func says(t *testing.T, name string, words ...string) {
	t.Helper()
	eventually(t, "what is said of "+name, func() error {
		text := explained(name)
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("%q is not in\n%s", w, text)
			}
		}
		return nil
	})
}

// killPodsyncAndWait kills it, and waits until it is back.
func killPodsyncAndWait(t *testing.T) {
	t.Helper()
	killed := killPodsync(t)
	eventually(t, "podsync back", func() error {
		if now := property(t, "polylet-podsync.service", "MainPID"); now == killed || now == "0" {
			return fmt.Errorf("its process is %s, it was %s", now, killed)
		}
		_, err := get(healthz)
		return err
	})
}

// isGone is whether the node has no such pod any more.
func isGone(name string) func() error {
	return func() error {
		if _, err := pod(name); err == nil {
			return errors.New("it is still there")
		} else if !strings.HasPrefix(err.Error(), "no pod") {
			return err
		}
		return nil
	}
}

// waits is where in the kernel processes wait.
func waits(program string) (all []string) {
	pids, _ := pidsOf(program)
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/", pid)
		stat, _ := os.ReadFile(dir + "stat")
		stack, _ := os.ReadFile(dir + "stack")
		all = append(all, string(stat[:min(len(stat), 40)])+"\n"+string(stack))
	}
	return all
}

// withWatchdog has podsync's watchdog bite within a time that an emulated machine keeps.
func withWatchdog(t *testing.T, within string) {
	t.Helper()
	file := filepath.Join(filepath.Dir(dropIn("podsync")), "watchdog.conf")
	again := [][]string{{"systemctl", "daemon-reload"}, {"systemctl", "restart", "polylet-podsync.service"}}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(file), runAll(again)); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(write(file, "[Service]\nWatchdogSec="+within+"\n"), runAll(again)); err != nil {
		t.Fatal(err)
	}
}

// TestAnNFSServerThatGoesSilentHoldsUpItsOwnPodsOnly: one pod reads, one writes, one is new
// while the server is silent, and podsync is killed, too. When it speaks again all of it ends.
func TestAnNFSServerThatGoesSilentHoldsUpItsOwnPodsOnly(t *testing.T) {
	serveFiles(t, "vers3=n\n")
	withWatchdog(t, "2min")
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
	usual := max(passes(t, "usual-1"), passes(t, "usual-2"))
	volume := ofNFS("files", nfsSquashed, false)
	reads, writes := nfsPod("reads", "while true; do cat /v/files/part/of >/dev/null; sleep 0.1; done", volume), nfsPod("writes", "while true; do dd if=/dev/zero of=/v/files/w bs=1M count=4 conv=fsync; done", ofNFS("open", nfsOpen, false))
	*writes.Spec.SecurityContext.RunAsUser, *writes.Spec.SecurityContext.RunAsGroup = 0, 0
	writes.Spec.Containers[0].Command[2] = strings.ReplaceAll(writes.Spec.Containers[0].Command[2], "/v/files", "/v/open")
	for _, p := range []corev1.Pod{reads, writes, testPod("steady", "", "", "", "")} {
		apply(t, p)
		defer remove(t, p.Name)
	}
	was := map[string]string{}
	for _, name := range []string{"reads", "writes", "steady"} {
		was[name] = ready(t, name).Status.ContainerStatuses[0].ContainerID
	}

	speaks := goesSilent(t)
	silentSince := time.Now()
	for name, server := range map[string]string{"asks": nfsServer, "refused": noServer, "lost": deadServer} {
		v := ofNFS("files", nfsSquashed, false)
		v.NFS.Server = server
		apply(t, nfsPod(name, idles, v))
		defer remove(t, name)
	}
	passesAsEver(t, "beside a silent server", "beside", usual)
	answers(t, "beside a silent server")

	// The end of what writes waits for its own volume.
	if err := os.Remove(filepath.Join(manifests, "writes.yaml")); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	passesAsEver(t, "while the end of another one waits for a server", "while", usual)
	t.Logf("%s after its end began, where its processes wait: %q\n%s", time.Since(ended).Round(time.Second), waits("dd"), explained("writes"))
	goneAfter := time.Duration(0)
	if isGone("writes")() == nil {
		goneAfter = time.Since(ended)
	}
	t.Logf("gone: %s\n%s", goneAfter, strings.Join(nfsMounts(t), "\n"))

	killPodsyncAndWait(t)
	passesAsEver(t, "after podsync was killed beside a silent server", "after", usual)
	for _, name := range []string{"reads", "steady"} {
		if is := ready(t, name).Status.ContainerStatuses[0]; is.ContainerID != was[name] || is.RestartCount != 0 {
			t.Errorf("the container of %s was %s, is %s after %d restarts", name, was[name], is.ContainerID, is.RestartCount)
		}
	}
	answers(t, "after podsync was killed")

	if err := os.Remove(filepath.Join(manifests, "reads.yaml")); err != nil {
		t.Fatal(err)
	}
	ended = time.Now()
	eventually(t, "what writes is gone", isGone("writes"))
	eventually(t, "what reads is gone", isGone("reads"))
	t.Logf("%s after its end what reads is gone; silent for %s", time.Since(ended).Round(time.Second), time.Since(silentSince).Round(time.Second))
	// Of a server that is mounted already the kernel's client waits for that, without a word.
	says(t, "asks", "FailedMount", "context deadline exceeded", "something does not answer")
	says(t, "refused", "FailedMount", "mount.nfs: Connection refused")
	says(t, "lost", "FailedMount", "mount.nfs: Connection timed out")
	t.Logf("asks:\n%s\nrefused:\n%s\nlost:\n%s", explained("asks"), explained("refused"), explained("lost"))
	answers(t, "before the server speaks again")
	t.Logf("silent for %s", time.Since(silentSince).Round(time.Second))

	speaks()
	spoke := time.Now()
	for _, name := range []string{"asks", "refused", "lost"} {
		ready(t, name)
	}
	t.Logf("%s after the server speaks again those that waited for it are Ready", time.Since(spoke).Round(time.Second))
	for _, name := range []string{"asks", "refused", "lost", "steady"} {
		remove(t, name)
	}
	nothingOfNFSIsLeft(t)
	if got := property(t, "polylet-podsync.service", "NRestarts"); got != "1" {
		t.Errorf("podsync was restarted %s times, and killed once", got)
	}
	left, err := filepath.Glob("/var/lib/kubelet/pods/*")
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left: %v", left)
	}
	journal, journalErr := exec.Command("journalctl", "-b", "--no-pager", "-o", "cat", "-u", "polylet-podsync", "-g", "Watchdog").CombinedOutput()
	if said := strings.TrimSpace(string(journal)); said != "" && !slices.Contains([]string{"-- No entries --"}, said) {
		err = errors.Join(err, fmt.Errorf("of the watchdog (%v): %s", journalErr, said))
	}
	if err != nil {
		t.Error(err)
	}
}
