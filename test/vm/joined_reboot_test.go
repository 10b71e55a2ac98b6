package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/images"
)

const (
	// wentDown holds the boot's ID in which the machine was told to go down and to start
	// again.
	wentDown = "/var/lib/polylet-went-down"
	// runsDir has a file for each pod of counted, with a line for each time that it ran.
	runsDir = "/var/lib/runs"
	// endedByShutdown is what a kubelet says of a pod that it ended for that.
	endedByShutdown = "Pod was terminated in response to imminent node shutdown."
)

// endsWithMachine are pods, by priority, that end when the machine goes down; there is
// nobody who would make them anew.
var endsWithMachine = []string{"ends-low", "ends-high", "ends-critical"}

// counted is a pod that writes down each time that it runs, and takes three seconds to end.
func counted(name string) *corev1.Pod {
	p, grace, made := bind(name), int64(10), corev1.HostPathDirectoryOrCreate
	p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = corev1.RestartPolicyAlways, &grace
	p.Spec.Volumes = []corev1.Volume{{Name: "runs", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: runsDir, Type: &made}}}}
	c := &p.Spec.Containers[0]
	c.Image, c.VolumeMounts = images.BusyBox, []corev1.VolumeMount{{Name: "runs", MountPath: "/runs"}}
	c.Command = []string{"sh", "-c", "echo run >>/runs/" + name + "; trap 'sleep 3; exit 0' TERM; sleep 100000 & wait"}
	return p
}

// wantRuns compares how often pods have run.
func wantRuns(t *testing.T, want map[string]int) {
	t.Helper()
	for name, times := range want {
		data, err := os.ReadFile(filepath.Join(runsDir, name))
		if got := strings.Count(string(data), "\n"); err != nil || got != times {
			t.Errorf("%s ran %d times, want %d (%v)", name, got, times, err)
		}
	}
}

// TestJoinedAMachineThatStartsAgainWaitsForItsPods: systemctl reboot, for which logind
// waits. It is over when systemd ends it with everything else.
func TestJoinedAMachineThatStartsAgainWaitsForItsPods(t *testing.T) {
	began, client := time.Now(), joinedCluster(t)
	if err := class(t.Context(), client, "reboot-high", 1000); err != nil {
		t.Fatal(err)
	}
	for name, class := range map[string]string{"ends-low": "", "ends-high": "reboot-high", "ends-critical": "system-node-critical"} {
		p := counted(name)
		p.Spec.PriorityClassName = class
		create(t, client, p)
	}
	done := counted("done")
	done.Spec.RestartPolicy, done.Spec.Containers[0].Command = corev1.RestartPolicyNever, []string{"sh", "-c", "echo run >>/runs/done"}
	create(t, client, done)
	own := counted("own")
	own.Spec.NodeName = ""
	apply(t, *own)
	for _, name := range append([]string{"own-" + node}, endsWithMachine...) {
		runs(t, client, name)
	}
	eventually(t, "a pod has ended by itself", func() error { return phase(t, client, "done", corev1.PodSucceeded) })
	lockIsHeld(t)
	ends := watchEnds(t, client)
	// The machine is off when the tests are over, but for this time.
	unit := "/run/systemd/system/polylet-test.service.d/again.conf"
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err = errors.Join(err, os.WriteFile(wentDown, boot, 0o600), write(unit, "[Unit]\nSuccessAction=none\nFailureAction=none\n"), run("systemctl", "daemon-reload")); err != nil {
		t.Fatal(err)
	}
	if t.Failed() {
		return
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	told := time.Now()
	if err := run("systemctl", "reboot"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(10 * time.Minute):
		err := errors.Join(os.Remove(unit), os.Remove(wentDown), run("systemctl", "daemon-reload"))
		t.Fatal("the machine does not go down", err)
	}
	verdict, problem := "PASS", ends()
	if problem != nil {
		verdict = "FAIL"
	}
	fmt.Printf("--- %s: %s (%.2fs; it was held for %s)\n", verdict, t.Name(), time.Since(began).Seconds(), time.Since(told).Round(time.Second))
	if problem != nil {
		fmt.Printf("%v\nFAIL\n", problem)
	}
	os.Exit(0)
}

// lockIsHeld waits until logind is kept from ending the machine at once.
func lockIsHeld(t *testing.T) {
	t.Helper()
	eventually(t, "logind's lock is held", func() error {
		out, err := exec.Command("busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "ListInhibitors").CombinedOutput()
		if err != nil || !strings.Contains(string(out), `"shutdown"`) || !strings.Contains(string(out), `"delay"`) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// watchEnds follows the apiserver's pods. What it returns says what the apiserver had not
// been told by then, of endsWithMachine and of their order.
func watchEnds(t *testing.T, client kubernetes.Interface) (judge func() error) {
	t.Helper()
	changes, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	last := map[string]*corev1.Pod{}
	go func() {
		for change := range changes.ResultChan() {
			if p, is := change.Object.(*corev1.Pod); is && change.Type != watch.Deleted {
				mu.Lock()
				last[p.Name] = p
				mu.Unlock()
			}
		}
	}()
	return func() (problem error) {
		mu.Lock()
		defer mu.Unlock()
		before := time.Time{}
		for _, name := range endsWithMachine {
			p := last[name]
			if p == nil {
				return fmt.Errorf("%s was never seen", name)
			}
			problem = errors.Join(problem, shutDown(p))
			if s := p.Status.ContainerStatuses; len(s) > 0 && s[0].State.Terminated != nil {
				at := s[0].State.Terminated.FinishedAt.Time
				if at.Sub(before) < 2*time.Second { // each takes three
					problem = errors.Join(problem, fmt.Errorf("%s ended at %s, the one before at %s", name, at, before))
				}
				before = at
			}
		}
		return problem
	}
}

// shutDown wants a pod to have ended with the machine, in the kubelet's words.
func shutDown(p *corev1.Pod) error {
	if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Terminated" || p.Status.Message != endedByShutdown {
		return fmt.Errorf("%s: %s, %q, %q", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Terminated == nil {
			return fmt.Errorf("%s: %+v", p.Name, s.State)
		}
	}
	return nil
}

func TestJoinedAfterTheRebootNothingRunsTwiceAndTheNodeIsReady(t *testing.T) {
	before, err := os.ReadFile(wentDown)
	if err != nil {
		t.Skip("the machine has not started again: TestJoinedAMachineThatStartsAgainWaitsForItsPods has it do so")
	}
	client := joinedCluster(t)
	isReady(t, client)
	now, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || string(now) == string(before) {
		t.Fatalf("the boot was %s and is %s, %v", before, now, err)
	}
	id := strings.TrimSpace(string(now))
	eventually(t, "the Node says that it was started again", func() error { return saysRebooted(t, client, id) })
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The apiserver taints each new Node as not ready; there is no controller that ends that.
	asNew := func(taint corev1.Taint) bool {
		return taint.Key == corev1.TaintNodeNotReady && taint.Effect == corev1.TaintEffectNoSchedule
	}
	if taints := slices.DeleteFunc(n.Spec.Taints, asNew); len(taints) != 0 || n.Spec.Unschedulable || n.Status.NodeInfo.BootID != id {
		t.Errorf("taints %v, unschedulable %t, boot %s", n.Spec.Taints, n.Spec.Unschedulable, n.Status.NodeInfo.BootID)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Reason != "KubeletReady" || c.Message != "kubelet is posting ready status") || c.Type != corev1.NodeReady && c.Status != corev1.ConditionFalse {
			t.Errorf("condition %+v", c)
		}
	}
	runs(t, client, "own-"+node)
	create(t, client, counted("new"))
	runs(t, client, "new")
	time.Sleep(20 * time.Second) // A real node: what should not run again would by then.
	wantRuns(t, map[string]int{"ends-low": 1, "ends-high": 1, "ends-critical": 1, "done": 1, "own": 2, "new": 1})
	for _, name := range endsWithMachine {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			err = errors.Join(shutDown(p), noneRuns(t, name))
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := phase(t, client, "done", corev1.PodSucceeded); err != nil {
		t.Error(err)
	}
	goes(t, client, append([]string{"new", "done"}, endsWithMachine...)...)
	remove(t, "own")
	lockIsHeld(t)
}

// saysRebooted wants one event of this boot, as a kubelet sends it.
func saysRebooted(t *testing.T, client kubernetes.Interface, boot string) error {
	t.Helper()
	want, times := fmt.Sprintf("Node %s has been rebooted, boot id: %s", node, boot), int32(0)
	var said []string
	for _, e := range events(t, client, "reason=Rebooted,involvedObject.kind=Node") {
		said = append(said, e.Message)
		if e.Message == want && e.Type == corev1.EventTypeWarning {
			times += max(e.Count, 1)
		}
	}
	if times != 1 {
		return fmt.Errorf("%d times %q; there are %q", times, want, said)
	}
	return nil
}

// noneRuns checks that no container of a pod runs.
func noneRuns(t *testing.T, pod string) error {
	t.Helper()
	return noContainer(t, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, LabelSelector: map[string]string{"io.kubernetes.pod.name": pod},
	})
}

func noContainer(t *testing.T, of *runtimeapi.ContainerFilter) error {
	t.Helper()
	list, err := runtimeapi.NewRuntimeServiceClient(criClient(t)).ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: of})
	if n := len(list.GetContainers()); err == nil && n > 0 {
		err = fmt.Errorf("%s has %d containers", of, n)
	}
	return err
}

func criClient(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// phase checks which one a pod is in, in the apiserver.
func phase(t *testing.T, client kubernetes.Interface, name string, want corev1.PodPhase) error {
	t.Helper()
	p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err == nil && p.Status.Phase != want {
		err = fmt.Errorf("pod %s is %s: %s %s", name, p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	return err
}
