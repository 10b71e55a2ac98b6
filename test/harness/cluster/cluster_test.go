package cluster_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/realtest"
)

func start(t *testing.T, controllers bool) (context.Context, *cluster.Cluster) {
	t.Helper()
	ctx := realtest.Begin(t, "needs root, a built control plane and minutes", 15*time.Minute)
	c, err := cluster.Start(ctx, cluster.Config{Instance: realtest.Instance(t), Controllers: controllers, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return ctx, c
}

func TestNoPortIsGivenTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 1000 { // among 14,000 two would be the same
		port, err := cluster.FreePort()
		if err != nil || seen[port] {
			t.Fatalf("port %d after %d others, error %v", port, len(seen), err)
		}
		seen[port] = true
	}
}

func TestAClusterWithControllersSchedulesAPod(t *testing.T) {
	ctx, c := start(t, true)
	if err := c.Namespace(ctx, "work"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, c.Kubectl, "--kubeconfig", c.AdminKubeconfig, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Server Version: v1.36.3") {
		t.Errorf("kubectl version: %v\n%s", err, out)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		Capacity:   corev1.ResourceList{"pods": *quantity("10"), "cpu": *quantity("1"), "memory": *quantity("1Gi")},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
	}}
	if _, err := c.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		Containers:  []corev1.Container{{Name: "c", Image: "x"}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}}
	if _, err := c.Client.CoreV1().Pods("work").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		got, err := c.Client.CoreV1().Pods("work").Get(ctx, "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Spec.NodeName == "n1" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func TestANodesKubeconfigMayNotTouchAnotherNode(t *testing.T) {
	ctx, c := start(t, false)
	path, err := c.NodeKubeconfig("mine")
	if err != nil {
		t.Fatal(err)
	}
	rest, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(rest)
	mine := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	if _, err := client.CoreV1().Nodes().Create(ctx, mine, metav1.CreateOptions{}); err != nil {
		t.Errorf("create the own node: %v", err)
	}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if _, err := client.CoreV1().Nodes().Create(ctx, other, metav1.CreateOptions{}); err == nil {
		t.Error("a node created another node")
	}
}

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}
