package vm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// eater is a unit that uses up the machine's memory, which no limit of pods is about.
const eater = "eater.service"

// TestJoinedAMachineOutOfMemoryEndsWhoHasUsedItUpAndNothingOfPolylets: nobody is evicted
// before, for next to nothing has to be left; so it is the kernel that ends somebody.
func TestJoinedAMachineOutOfMemoryEndsWhoHasUsedItUpAndNothingOfPolylets(t *testing.T) {
	client := joinedCluster(t)
	endsEarly(t)
	before := reconfigure(t, plainMemory(map[string]string{"evictionHard": "{memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}"}), "")
	defer restart(t, before)
	wantNoPressure(t, client)
	firm := bind("firm", "sleep")
	firm.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	create(t, client, firm)
	runs(t, client, "firm")
	isReady(t, client)
	agents := processes(t)
	for service, pid := range agents {
		if got, err := os.ReadFile("/proc/" + pid + "/oom_score_adj"); err != nil || strings.TrimSpace(string(got)) != "-999" {
			t.Errorf("%s is ended by the kernel with %q: %v", service, got, err)
		}
	}
	watched := watchNode(t, client)
	killed := kills(t)

	// Of what is read at once the kernel makes a page each as fast as it can; one process may
	// not ask for more than the whole machine has.
	if err := run("systemd-run", "--unit="+eater, "--quiet", "dd", "if=/dev/zero", "of=/dev/null", "iflag=fullblock", "count=1", fmt.Sprintf("bs=%dM", machine(t)-64)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "who has used the memory up is ended", func() error {
		if state := property(t, eater, "ActiveState"); state != "failed" {
			return fmt.Errorf("it is %s; %d MiB are available", state, available(t))
		}
		return nil
	})
	if got := property(t, eater, "Result"); got != "oom-kill" {
		t.Errorf("its result is %s", got)
	}
	victim := property(t, eater, "ExecMainPID")
	toldOf(t, client, killed, "dd", victim)
	if err := run("systemctl", "reset-failed", eater); err != nil {
		t.Error(err)
	}

	hungry := bind("hungry", "take", "mebibytes=100000")
	killed = kills(t)
	create(t, client, hungry)
	eventually(t, "a pod without a limit is ended", func() error {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), "hungry", metav1.GetOptions{})
		if err != nil {
			return err
		}
		// The runtime may miss the kernel's word, and its reason is Error then.
		if s := p.Status.ContainerStatuses; p.Status.Phase != corev1.PodFailed || len(s) == 0 || s[0].State.Terminated == nil || s[0].State.Terminated.ExitCode != 137 {
			return fmt.Errorf("%s, %+v; %d MiB are available", p.Status.Phase, s, available(t))
		}
		return nil
	})
	app, pid := toldOf(t, client, killed, "", "")
	want := fmt.Sprintf("Process %s (pid %s) of container app was killed, for the node's memory was used up", app, pid)
	eventually(t, "the pod's event says so", func() error {
		said := events(t, client, "reason=OOMKilling,involvedObject.name=hungry")
		if len(said) != 1 || said[0].Message != want {
			return fmt.Errorf("want %q; there are %+v", want, said)
		}
		return nil
	})

	for _, problem := range watched() {
		t.Error(problem)
	}
	if now := processes(t); !maps.Equal(now, agents) {
		t.Errorf("the processes were %v and are %v", agents, now)
	}
	if p := runs(t, client, "firm"); p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod that has what it asked for: %+v", p.Status.ContainerStatuses)
	}
	if all := events(t, client, "reason=Evicted"); slices.ContainsFunc(all, func(e corev1.Event) bool { return e.InvolvedObject.Name == "firm" || e.InvolvedObject.Name == "hungry" }) {
		t.Errorf("somebody was evicted: %+v", all)
	}
	goes(t, client, "firm", "hungry")
}

// endsEarly has the kernel end somebody once what was used in the last seconds cannot stay in
// memory. Else, where nothing can be swapped, it throws the text of programs out and reads
// it anew for many minutes before it ends anybody, and nothing comes on meanwhile.
func endsEarly(t *testing.T) {
	t.Helper()
	const dir = "/sys/kernel/mm/lru_gen/"
	set := func(enabled, keep string) {
		if err := errors.Join(os.WriteFile(dir+"enabled", []byte(enabled), 0o644), os.WriteFile(dir+"min_ttl_ms", []byte(keep), 0o644)); err != nil {
			t.Error(err)
		}
	}
	set("y", "5000")
	t.Cleanup(func() { set("n", "0") })
}

// machine is how much memory the machine has, in MiB.
func machine(t *testing.T) uint64 {
	t.Helper()
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	return info.Totalram * uint64(info.Unit) >> 20
}

// kills are those that the kernel says it has done for want of the machine's memory, "PID
// (NAME)" each.
func kills(t *testing.T) []string { return killsOf(t, "Out of memory") }

// killsOf are those that it says it has done in these words.
func killsOf(t *testing.T, words string) (out []string) {
	t.Helper()
	said, err := exec.Command("dmesg").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)[\]:] `+words+`: Killed process (\d+ \(.+?\)) total-vm`).FindAllSubmatch(said, -1) {
		out = append(out, string(found[1]))
	}
	return slices.Compact(out) // with memory.oom.group the first of them is said twice
}

// toldOf wants the kernel to have ended one process since those before, and that one told
// of on the Node once, in the kubelet's words; it may be known which.
func toldOf(t *testing.T, client kubernetes.Interface, before []string, wantName, wantPID string) (name, pid string) {
	t.Helper()
	news := kills(t)[len(before):]
	if len(news) != 1 {
		t.Fatalf("the kernel ended %q", news)
	}
	pid, name, _ = strings.Cut(strings.TrimSuffix(news[0], ")"), " (")
	if wantPID != "" && (pid != wantPID || name != wantName) {
		t.Errorf("the kernel ended %q, not %s, %s", news, wantName, wantPID)
	}
	want := fmt.Sprintf("System OOM encountered, victim process: %s, pid: %s", name, pid)
	eventually(t, "the Node's event says so", func() error {
		said, times := []string{}, int32(0)
		for _, e := range events(t, client, "reason=SystemOOM,involvedObject.kind=Node") {
			said = append(said, e.Message)
			if e.Message == want && e.Type == corev1.EventTypeWarning {
				times += max(e.Count, 1)
			}
		}
		if times != 1 {
			return fmt.Errorf("%d times %q; there are %q", times, want, said)
		}
		return nil
	})
	return name, pid
}

// watchNode looks at the Node and its lease each second, until what it returns is called:
// that returns what was wrong.
func watchNode(t *testing.T, client kubernetes.Interface) (end func() []string) {
	t.Helper()
	stop := make(chan struct{})
	var done sync.WaitGroup
	var problems []string
	longest, misses := time.Duration(0), 0
	done.Go(func() {
		for ticks := time.NewTicker(time.Second); ; {
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
			lease, err := client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), node, metav1.GetOptions{})
			if err != nil {
				misses++ // who asks may be starved, too
				continue
			}
			longest = max(longest, time.Since(lease.Spec.RenewTime.Time))
			if err := nodeReady(t, client); err != nil {
				problems = append(problems, err.Error())
			}
		}
	})
	return func() []string {
		close(stop)
		done.Wait()
		t.Logf("the lease was %s old at most; %d questions had no answer", longest.Round(100*time.Millisecond), misses)
		if limit := 40 * time.Second; longest > limit {
			problems = append(problems, fmt.Sprintf("the lease was %s old: after %s a node is given up", longest, limit))
		}
		return problems
	}
}
