package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/polylet/polylet/test/harness/images"
)

// kubeadmWithin bounds one command of kubeadm's.
const kubeadmWithin = 90 * time.Minute

// unconfigured is how long the installed node is left alone before kubeadm comes.
const unconfigured = time.Minute

const adminConf = "/etc/kubernetes/admin.conf"

// controlPlane are the static pods by the value of their label component.
var controlPlane = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// TestKubeadmMakesANodeOfTheUnitKubelet goes through a node's life as an
// administrator does, with every check of kubeadm's and without a flag that is not in
// its guide. Each step needs the one before.
func TestKubeadmMakesANodeOfTheUnitKubelet(t *testing.T) {
	var c *kubeadmCluster
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"before init the unit is up and waits", waitsForKubeadm},
		{"preflight", preflight},
		{"init", func(t *testing.T) { c = kubeadmInit(t) }},
		{"the control plane runs as static pods", func(t *testing.T) { c.assertControlPlane(t) }},
		{"the node has its certificate and kube-proxy", func(t *testing.T) { c.assertJoined(t) }},
		{"with a network it is Ready and CoreDNS too", func(t *testing.T) { c.assertNetwork(t) }},
		{"pods are in the slices of systemd", func(t *testing.T) { c.assertSlices(t) }},
		{"the API server reaches the node", func(t *testing.T) { c.assertReached(t) }},
		{"a restart of the unit is not noticed", func(t *testing.T) { c.assertRestart(t) }},
		{"reset leaves nothing", assertReset},
	} {
		if !t.Run(strings.ReplaceAll(step.name, " ", "_"), step.do) {
			t.FailNow()
		}
	}
}

// waitsForKubeadm is about the time between the installation and kubeadm: there is no
// configuration yet, so nothing can run, and nothing may be busy with trying.
func waitsForKubeadm(t *testing.T) {
	for unit, want := range map[string]string{"kubelet.service": "active", "containerd.service": "active"} {
		if got := property(t, unit, "ActiveState"); got != want {
			t.Errorf("%s is %s", unit, got)
		}
	}
	if text := property(t, "kubelet.service", "ExecStart"); !strings.Contains(text, "/usr/bin/true") {
		t.Errorf("the drop-in of kubeadm's package wins: %s", text)
	}
	time.Sleep(unconfigured) // during which nothing is to happen
	for _, s := range append([]string{"handout"}, services...) {
		restarts, err := strconv.Atoi(property(t, "polylet-"+s+".service", "NRestarts"))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("restarts of %s in %s without a configuration: %d", s, unconfigured, restarts)
		if restarts > 10 {
			t.Errorf("%s was started %d times in %s", s, restarts, unconfigured)
		}
	}
	// What waits, too, ends when it is told to. kubeadm starts it.
	if err := run("systemctl", "stop", "kubelet"); err != nil {
		t.Fatal(err)
	}
	for _, s := range append([]string{"handout"}, services...) {
		if got := property(t, "polylet-"+s+".service", "ActiveState"); got != "inactive" {
			t.Errorf("after a stop %s is %s", s, got)
		}
	}
}

// preflight has kubeadm look at the machine and pull the images, which is what its init
// begins with. It gives the runtime two seconds for an answer, which an emulated one
// may not have in time at once.
func preflight(t *testing.T) {
	var out string
	eventually(t, "kubeadm is content with the machine", func() (err error) {
		out, err = kubeadmRun(t, "init", "phase", "preflight", "--config="+initFile)
		return err
	})
	noComplaints(t, out)
}

// noComplaints looks for what kubeadm says of an agent, or a machine, that it doubts.
func noComplaints(t *testing.T, out string) {
	t.Helper()
	for _, bad := range []string{"Service-Kubelet", "KubeletVersion", "Port-10250", "SystemVerification", "could not be"} {
		if strings.Contains(out, bad) {
			t.Errorf("kubeadm complains: %s\n%s", bad, out)
		}
	}
}

type kubeadmCluster struct{ client kubernetes.Interface }

// kubeadmRun prints what kubeadm says as it says it, since that takes long here.
func kubeadmRun(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubeadmWithin)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubeadm", args...)
	cmd.Stdout = io.MultiWriter(&out, os.Stdout)
	cmd.Stderr = cmd.Stdout
	done := make(chan struct{})
	defer close(done)
	go tellProgress(done)
	err := cmd.Run()
	return out.String(), err
}

// tellProgress says every other minute what the machine is at.
func tellProgress(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(2 * time.Minute):
		}
		for _, command := range [][]string{
			{"systemctl", "--no-pager", "list-jobs"},
			{"systemctl", "--no-pager", "--plain", "--no-legend", "list-units", "polylet*", "kubelet*", "cri-containerd*"},
			{"systemd-cgtop", "--batch", "--iterations=2", "--delay=5s", "--depth=3", "--order=cpu"},
		} {
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			fmt.Printf("$ %s (%v)\n%s", strings.Join(command, " "), err, out)
		}
	}
}

// kubeadmInit runs kubeadm init, and reads what it says and writes.
func kubeadmInit(t *testing.T) *kubeadmCluster {
	out, err := kubeadmRun(t, "init", "--config="+initFile, "--skip-phases=preflight")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The kubelet is healthy after", "to point to a rotatable kubelet client certificate", "initialized successfully"} {
		if !strings.Contains(out, want) {
			t.Errorf("kubeadm init does not say %q", want)
		}
	}
	noComplaints(t, out)
	for file, want := range map[string]string{
		"/var/lib/kubelet/config.yaml": "cgroupDriver: systemd", "/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=",
		"/etc/kubernetes/kubelet.conf": "/var/lib/kubelet/pki/kubelet-client-current.pem",
	} {
		if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %q: %v\n%s", file, want, err, data)
		}
	}
	rest, err := clientcmd.BuildConfigFromFlags("", adminConf)
	if err != nil {
		t.Fatal(err)
	}
	rest.QPS, rest.Burst, rest.Timeout = 50, 100, 5*time.Minute
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	return &kubeadmCluster{client}
}

// pods waits until as many pods with the label are Ready.
func (c *kubeadmCluster) pods(t *testing.T, label string, many int) []corev1.Pod {
	t.Helper()
	var ready []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods with %s Ready", many, label), func() error {
		list, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return err
		}
		ready = nil
		var text []string
		for _, p := range list.Items {
			text = append(text, fmt.Sprintf("%s: %s %v", p.Name, p.Status.Phase, p.Status.ContainerStatuses))
			if hasCondition(p.Status.Conditions, corev1.PodReady) {
				ready = append(ready, p)
			}
		}
		if len(ready) != many {
			return fmt.Errorf("%d are: %s", len(ready), strings.Join(text, "; "))
		}
		return nil
	})
	return ready
}

func hasCondition(conditions []corev1.PodCondition, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

// notReady is why the Node is not; empty when it is.
func (c *kubeadmCluster) notReady(t *testing.T) string {
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return condition.Reason + ": " + condition.Message
		} else if condition.Type == corev1.NodeReady {
			return ""
		}
	}
	return "it has no condition Ready"
}

func (c *kubeadmCluster) assertControlPlane(t *testing.T) {
	for _, component := range controlPlane {
		p := c.pods(t, "component="+component, 1)[0]
		if p.Name != component+"-"+nodeName || p.Annotations["kubernetes.io/config.mirror"] == "" || p.Status.PodIP != address {
			t.Errorf("%s is no mirror pod of a static pod on %s: %v, address %s", p.Name, address, p.Annotations, p.Status.PodIP)
		}
		t.Logf("restarts of %s: %d", component, p.Status.ContainerStatuses[0].RestartCount)
	}
	if why := c.notReady(t); !strings.Contains(why, "network") {
		t.Errorf("before there is a network the Node is not Ready: %q", why)
	}
}

func (c *kubeadmCluster) assertJoined(t *testing.T) {
	node, err := c.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := node.Labels["node-role.kubernetes.io/control-plane"]; !ok || !strings.HasPrefix(node.Status.NodeInfo.KubeletVersion, "v1.36.") {
		t.Errorf("the Node has version %s and labels %v", node.Status.NodeInfo.KubeletVersion, node.Labels)
	}
	c.pods(t, "k8s-app=kube-proxy", 1) // by way of a service account, whose token only the Node's own user gets
	for _, s := range append([]string{"handout"}, services...) {
		if got := property(t, "polylet-"+s+".service", "ActiveState"); got != "active" {
			t.Errorf("%s is %s", s, got)
		}
	}
}

func (c *kubeadmCluster) assertNetwork(t *testing.T) {
	eventually(t, "the Node has a part of the pods' network", func() error {
		node, err := c.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err == nil && node.Spec.PodCIDR == "" {
			err = errors.New("it has none")
		}
		if err != nil {
			return err
		}
		return write("/etc/cni/net.d/10-bridge.conflist", podNetwork(node.Spec.PodCIDR))
	})
	eventually(t, "the Node is Ready", func() error {
		if why := c.notReady(t); why != "" {
			return errors.New(why)
		}
		return nil
	})
	c.pods(t, "k8s-app=kube-dns", 2)
	t.Log("memory of the machine:", machineMemory(t))
	for _, slice := range []string{"polylet.slice", "kubepods.slice"} {
		current, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", slice, "memory.current"))
		if err != nil {
			t.Fatal(err)
		}
		bytes, err := strconv.Atoi(strings.TrimSpace(string(current)))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("memory of %s: %d MiB", slice, bytes>>20)
	}
}

// machineMemory is how much of it is used, besides what the kernel may take back.
func machineMemory(t *testing.T) string {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	kib := func(name string) int {
		found := regexp.MustCompile(`(?m)^` + name + `: +(\d+) kB`).FindSubmatch(data)
		if found == nil {
			t.Fatalf("no %s in %s", name, data)
		}
		n, _ := strconv.Atoi(string(found[1])) // digits
		return n
	}
	return fmt.Sprintf("%d MiB used of %d", (kib("MemTotal")-kib("MemAvailable"))>>10, kib("MemTotal")>>10)
}

// assertSlices looks where the kernel has the containers' processes.
func (c *kubeadmCluster) assertSlices(t *testing.T) {
	for _, component := range append(slices.Clone(controlPlane), "kube-proxy") {
		pids, err := pidsOf(component)
		if err != nil || len(pids) != 1 {
			t.Fatalf("processes of %s: %v, %v", component, pids, err)
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pids[0]))
		if err != nil || !regexp.MustCompile(`^0::/kubepods\.slice/kubepods-\S+\.slice/kubepods-\S+-pod\S+\.slice/cri-containerd-\S+\.scope\n$`).Match(data) {
			t.Errorf("%s is in %q, %v", component, data, err)
		}
	}
}

// pidsOf are the processes with this name, which the kernel keeps cut.
func pidsOf(name string) ([]int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || len(data) == 0 {
			continue // it has ended, or is the kernel's
		}
		program, _, _ := strings.Cut(string(data), "\x00")
		if filepath.Base(program) != name {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// kubectl acts as the administrator.
func kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig=" + adminConf}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// assertReached asks the node by way of the API server, which shows a certificate that
// the node's configuration names, and whose rights the node asks for.
func (c *kubeadmCluster) assertReached(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "steady"}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64),
		Containers:                    []corev1.Container{{Name: "app", Image: images.TestApp, Args: []string{"http", "port=8080"}}},
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}}
	if _, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.steady(t)
	for want, args := range map[string][]string{
		"serving HTTP on": {"logs", "steady"},
		"steady":          {"exec", "steady", "--", "/testapp", "get", "url=http://127.0.0.1:8080/hostname"},
		"kubelet":         {"get", "--raw", "/api/v1/nodes/" + nodeName + "/proxy/metrics"},
	} {
		if out, err := kubectl(t, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	// By the service's name, by way of kube-proxy's rules and CoreDNS.
	out, err := kubectl(t, "exec", "steady", "--", "/testapp", "get", "url=http://kube-dns.kube-system.svc.cluster.local:9153/metrics")
	if err != nil || !strings.Contains(out, "coredns_build_info") {
		t.Errorf("the pod asks CoreDNS by its name: %v\n%.300s", err, out)
	}
	if res, err := get(secure + "/pods"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a stranger is answered %.100s, %v", res, err)
	}
}

// steady waits for the pod to be Ready.
func (c *kubeadmCluster) steady(t *testing.T) (p *corev1.Pod) {
	t.Helper()
	eventually(t, "the pod is Ready", func() (err error) {
		p, err = c.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "steady", metav1.GetOptions{})
		if err == nil && !hasCondition(p.Status.Conditions, corev1.PodReady) {
			err = fmt.Errorf("status is %v", p.Status)
		}
		return err
	})
	return p
}

func (c *kubeadmCluster) assertRestart(t *testing.T) {
	before := c.steady(t)
	pid := property(t, "polylet-podsync.service", "MainPID")
	if err := run("systemctl", "restart", "kubelet"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
	eventually(t, "the Node is Ready", func() error {
		if now := property(t, "polylet-podsync.service", "MainPID"); now == pid || now == "0" {
			return fmt.Errorf("podsync is process %s", now)
		}
		lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil || time.Since(lease.Spec.RenewTime.Time) > 40*time.Second {
			return fmt.Errorf("its lease: %v, %v", err, lease.Spec.RenewTime)
		}
		if why := c.notReady(t); why != "" {
			return errors.New(why)
		}
		return nil
	})
	after := c.steady(t)
	if was, is := readyAt(before), readyAt(after); !was.Equal(&is) || before.Status.ContainerStatuses[0].ContainerID != after.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("it was %v, it is %v", before.Status, after.Status)
	}
}
