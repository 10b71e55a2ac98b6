package vm

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestJoinedMemoryIsProtectedAndLeftToClasses: MemoryQoS and qosReserved, in the files of
// cgroup v2.
func TestJoinedMemoryIsProtectedAndLeftToClasses(t *testing.T) {
	client := joinedCluster(t)
	isReady(t, client)
	none := files(t, "kubepods.slice/kubepods-besteffort.slice", "memory.max")
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		return l
	}
	firm, loose := bind("firm", "sleep"), bind("loose", "sleep")
	firm.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("100m", "64Mi"), Limits: list("100m", "64Mi")}
	loose.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list("", "32Mi"), Limits: list("", "96Mi")}
	create(t, client, firm, loose)
	firm, loose = runs(t, client, "firm"), runs(t, client, "loose")
	scope := func(p *corev1.Pod) string {
		return "cri-containerd-" + strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://") + ".scope"
	}
	for path, want := range map[string]map[string]string{
		sliceOf("", firm): {"memory.min": "67108864", "memory.low": "0", "memory.max": "67108864"},
		filepath.Join(sliceOf("", firm), scope(firm)):            {"memory.min": "67108864", "memory.high": "max"},
		sliceOf("burstable", loose):                              {"memory.min": "0", "memory.low": "33554432"},
		filepath.Join(sliceOf("burstable", loose), scope(loose)): {"memory.low": "33554432", "memory.high": strconv.Itoa((32 + 32) << 20), "memory.max": "100663296"},
		"kubepods.slice": {"memory.min": strconv.Itoa(96 << 20)},
		"kubepods.slice/kubepods-burstable.slice": {"memory.low": "33554432"},
	} {
		for file, want := range want {
			eventually(t, path+"/"+file, func() error {
				if got := files(t, path, file); got != want {
					return fmt.Errorf("%s, want %s", got, want)
				}
				return nil
			})
		}
	}
	// A half of what better ones asked for is not left to a class.
	left := func(class string) (n int) {
		n, _ = strconv.Atoi(files(t, "kubepods.slice/kubepods-"+class+".slice", "memory.max"))
		return n
	}
	whole, _ := strconv.Atoi(files(t, "kubepods.slice", "memory.max"))
	eventually(t, "what is left to classes", func() error {
		if b, e := left("burstable"), left("besteffort"); whole-b != 32<<20 || b-e != 16<<20 {
			return fmt.Errorf("of %d burstable pods have %d, and those of best effort %d", whole, b, e)
		}
		return nil
	})
	t.Logf("before there were pods: %s", none)
	goes(t, client, "firm", "loose")
	eventually(t, "nothing is kept from anybody", func() error {
		if b, e := left("burstable"), left("besteffort"); b != whole || e != whole || files(t, "kubepods.slice", "memory.min") != "0" {
			return fmt.Errorf("of %d burstable pods have %d, and those of best effort %d", whole, b, e)
		}
		return nil
	})
}

// sliceOf is the cgroup of a pod of a class; of none it is guaranteed.
func sliceOf(class string, p *corev1.Pod) string {
	uid := strings.ReplaceAll(string(p.UID), "-", "_")
	if class == "" {
		return "kubepods.slice/kubepods-pod" + uid + ".slice"
	}
	return "kubepods.slice/kubepods-" + class + ".slice/kubepods-" + class + "-pod" + uid + ".slice"
}

// isReady waits until the Node is Ready.
func isReady(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	eventually(t, "the Node is Ready", func() error { return nodeReady(t, client) })
}

func nodeReady(t *testing.T, client kubernetes.Interface) error {
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("conditions %+v", n.Status.Conditions)
}

// files reads a file of a cgroup.
func files(t *testing.T, path, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cgroups, path, file))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

// TestJoinedWhoTakesTheMemoryIsEvicted: on cgroup v2, with systemd's driver.
func TestJoinedWhoTakesTheMemoryIsEvicted(t *testing.T) {
	client := joinedCluster(t)
	modest := bind("modest", "sleep")
	create(t, client, modest)
	runs(t, client, "modest")
	free := available(t)
	hog := bind("hog", "take", fmt.Sprintf("mebibytes=%d", free-1024+200))
	create(t, client, hog)
	var got *corev1.Pod
	eventually(t, "the hog is evicted", func() (err error) {
		if got, err = client.CoreV1().Pods("default").Get(t.Context(), "hog", metav1.GetOptions{}); err != nil {
			return err
		}
		if got.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("%s; %d MiB are available", got.Status.Phase, available(t))
		}
		return nil
	})
	words := regexp.MustCompile(`^The node was low on resource: memory\. Threshold quantity: 1Gi, available: \d+Ki\. Container app was using \d+Ki, request is 0, has larger consumption of memory\. $`)
	if got.Status.Reason != "Evicted" || !words.MatchString(got.Status.Message) {
		t.Errorf("%s: %s", got.Status.Reason, got.Status.Message)
	}
	if p, err := client.CoreV1().Pods("default").Get(t.Context(), "modest", metav1.GetOptions{}); err != nil || p.Status.Phase != corev1.PodRunning {
		t.Errorf("the other one: %v, %v", p.Status.Phase, err)
	}
	condition := func(want corev1.ConditionStatus) func() error {
		return func() error {
			n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeMemoryPressure && c.Status != want {
					return fmt.Errorf("%+v", c)
				}
			}
			return nil
		}
	}
	eventually(t, "the pressure is over", condition(corev1.ConditionFalse))
	if out, err := exec.Command("/usr/bin/polylet", "explain", "node").CombinedOutput(); err != nil || !strings.Contains(string(out), "hog") {
		t.Errorf("polylet explain node: %v, %s", err, out)
	}
	goes(t, client, "hog", "modest")
}

// available is the machine's memory that is, in MiB.
func available(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`MemAvailable: +(\d+) kB`).FindSubmatch(data)
	if found == nil {
		t.Fatalf("%s", data)
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n / 1024
}

// TestJoinedAProcessOfNoCgroupIsMovedIntoTheSystems: podsync looks once a minute.
func TestJoinedAProcessOfNoCgroupIsMovedIntoTheSystems(t *testing.T) {
	loose := exec.Command("sleep", "3600")
	if err := loose.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = loose.Process.Kill(); _ = loose.Wait() }()
	if err := os.WriteFile(filepath.Join(cgroups, "cgroup.procs"), []byte(strconv.Itoa(loose.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(150 * time.Second); ; time.Sleep(time.Second) { // a real process's minute
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", loose.Process.Pid))
		if err == nil && strings.TrimSpace(string(data)) == "0::"+systemGroup {
			break
		}
		if time.Now().After(end) {
			status, _ := exec.Command("/usr/bin/polylet", "status").CombinedOutput()
			journal, _ := exec.Command("journalctl", "-b", "--no-pager", "-o", "cat", "-u", "polylet-podsync", "-g", "systemCgroups|system's|its cgroup").CombinedOutput()
			t.Fatalf("it is in %q, %v\n%s\n%s", data, err, status, journal)
		}
	}
	for unit, pid := range map[string]string{"podsync": property(t, "polylet-podsync.service", "MainPID"), "the first process": "1"} {
		data, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil || strings.Contains(string(data), systemGroup) {
			t.Errorf("%s was moved, too: %q, %v", unit, data, err)
		}
	}
}

// TestJoinedTheMachineGoesDownAfterItsPods is the last: logind is asked for what a power
// button asks for. What the apiserver has of the pods then is judged where it runs, once
// this machine is off.
func TestJoinedTheMachineGoesDownAfterItsPods(t *testing.T) {
	client := joinedCluster(t)
	if err := class(t.Context(), client, "high", 1000); err != nil {
		t.Fatal(err)
	}
	three, grace := []string{"low", "high", "critical"}, int64(3)
	for name, class := range map[string]string{"low": "", "high": "high", "critical": "system-node-critical"} {
		p := bind(name, "stubborn")
		p.Labels, p.Spec.PriorityClassName, p.Spec.TerminationGracePeriodSeconds = map[string]string{"goes": "down"}, class, &grace
		create(t, client, p)
	}
	for _, name := range three {
		runs(t, client, name)
	}
	lockIsHeld(t)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	began := time.Now()
	if err := run("busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "PowerOff", "b", "false"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked: // systemd stops all units now.
	case <-time.After(10 * time.Minute):
		t.Fatal("the machine does not go down")
	}
	took := time.Since(began)
	fmt.Printf("--- PASS: TestJoinedTheMachineGoesDownAfterItsPods (it was held for %s)\nPASS\n", took.Round(time.Second))
	if took < 9*time.Second {
		fmt.Println("FAIL: three pods that take 3 s each were not waited for")
	}
	os.Exit(0)
}
