package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/stack"
)

// otherName is the name of a second node.
const otherName = "other-node"

// buildTwo is build for a cluster with controllers and two nodes: the machine's, and
// one with namespaces of its own. The other's containers end with the test, its
// agent when asked to.
func buildTwo(t *testing.T) (h *house, other *stack.Stack) {
	t.Helper()
	return buildTwoWith(t, nil, nil)
}

// buildTwoWith is buildTwo with further flags of each node.
func buildTwoWith(t *testing.T, flags, otherFlags []string) (h *house, other *stack.Stack) {
	t.Helper()
	h = build(t, plan{standalone: true, supervised: true, flags: flags, prepare: func(h *house) {
		h.must(h.stack.StartSharedCluster(h.ctx, cluster.Config{Controllers: true}))
		h.cluster = h.stack.Cluster
		h.Cleanup(h.cluster.Kill)
	}})
	inst, err := instance.New()
	h.must(err)
	t.Cleanup(func() {
		if err := inst.Remove(); err != nil {
			t.Error(err)
		}
	})
	other, err = h.stack.Second(h.ctx, inst, otherName, 2, containerd.Config{})
	h.must(err)
	t.Cleanup(other.Stop)
	agent := stack.Polylet
	if onKubelet() {
		agent = stack.Kubelet
		h.must(inst.MakeCgroups())
	}
	h.must(other.MakeNode(h.ctx, agent, node.Config{Binary: h.binary, Name: otherName, Flags: otherFlags}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(other.Node.Logs(40))
		}
	})
	h.must(other.Node.Start(h.ctx))
	for _, name := range []string{nodeName, otherName} {
		h.eventually(2*time.Minute, name+" takes pods", func() error {
			n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return boolError(len(n.Status.Conditions) > 0 && len(n.Spec.Taints) == 0, "taints %v", n.Spec.Taints)
		})
	}
	return h, other
}

// webSet are pods on every node, or replicas of one, with an HTTP server.
func webTemplate() corev1.PodTemplateSpec {
	p := webApp("")
	p.Spec.NodeName, p.Spec.Tolerations = "", nil
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: p.Spec}
}

var webSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}

// onNodes waits until the Ready pods of the label app=web are so many on each node.
func (h *house) onNodes(within time.Duration, wanted map[string]int) map[string]corev1.Pod {
	h.Helper()
	found := map[string]corev1.Pod{}
	h.eventually(within, fmt.Sprintf("ready pods by node are %v", wanted), func() error {
		list, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		counts, text := map[string]int{}, ""
		for _, p := range list.Items {
			text += describe(&p) + " on " + p.Spec.NodeName + "\n"
			if isReady(&p) && p.DeletionTimestamp == nil {
				counts[p.Spec.NodeName]++
				found[p.Spec.NodeName] = p
			}
		}
		for _, name := range []string{nodeName, otherName} {
			if counts[name] != wanted[name] {
				return fmt.Errorf("they are %v:\n%s", counts, text)
			}
		}
		return nil
	})
	return found
}

func TestADaemonSetRunsOnBothNodesAndItsPodsReachEachOther(t *testing.T) {
	h, _ := buildTwo(t)
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DaemonSetSpec{Selector: webSelector, Template: webTemplate()}}
	_, err := h.cluster.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(h.ctx, set, metav1.CreateOptions{})
	h.must(err)
	pods := h.onNodes(3*time.Minute, map[string]int{nodeName: 1, otherName: 1})
	here, there := pods[nodeName], pods[otherName]
	for from, to := range map[string]corev1.Pod{here.Name: there, there.Name: here} {
		out, err := h.kubectl("exec", from, "--", "/testapp", "get", "url=http://"+to.Status.PodIP+":8080/hostname")
		if err != nil || !strings.Contains(out, to.Name) {
			t.Errorf("%s asks %s at %s: %q, %v", from, to.Name, to.Status.PodIP, out, err)
		}
	}
	for _, p := range pods { // by way of each node's own API
		if out, err := h.kubectl("logs", p.Name); err != nil || !strings.Contains(out, "serving HTTP on") {
			t.Errorf("the log of %s on %s: %q, %v", p.Name, p.Spec.NodeName, out, err)
		}
	}
}

func TestADrainedNodesPodsComeUpOnTheOther(t *testing.T) {
	h, _ := buildTwo(t)
	h.deployWeb(webTemplate())
	h.onNodes(3*time.Minute, map[string]int{nodeName: 1, otherName: 1})
	if out, err := h.kubectl("drain", nodeName, "--ignore-daemonsets", "--timeout=120s"); err != nil || !strings.Contains(out, "drained") {
		t.Fatalf("kubectl drain: %v\n%s", err, out)
	}
	h.onNodes(3*time.Minute, map[string]int{otherName: 2})
	_, err := h.kubectl("uncordon", nodeName)
	h.must(err)
	if out, err := h.kubectl("drain", otherName, "--ignore-daemonsets", "--timeout=120s"); err != nil || !strings.Contains(out, "drained") {
		t.Fatalf("kubectl drain: %v\n%s", err, out)
	}
	h.onNodes(3*time.Minute, map[string]int{nodeName: 2})
}

// deployWeb makes two replicas, on different nodes as long as both may have one.
func (h *house) deployWeb(template corev1.PodTemplateSpec) {
	h.Helper()
	template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: webSelector,
		NodeTaintsPolicy: ptr(corev1.NodeInclusionPolicyHonor),
	}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr(int32(2)), Selector: webSelector, Template: template,
	}}
	_, err := h.cluster.Client.AppsV1().Deployments(metav1.NamespaceDefault).Create(h.ctx, deployment, metav1.CreateOptions{})
	h.must(err)
}

// TestALostNodesPodsComeUpOnTheOtherAndEndWhenItIsBack cuts a node off: its agent
// and its pods run on, and nobody hears of them.
func TestALostNodesPodsComeUpOnTheOtherAndEndWhenItIsBack(t *testing.T) {
	h, other := buildTwo(t)
	template := webTemplate()
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr(int64(3)),
		})
	}
	h.deployWeb(template)
	lost := h.onNodes(3*time.Minute, map[string]int{nodeName: 1, otherName: 1})[otherName]
	_, err := other.Space.Shell(h.ctx, "ip link set eth0 down")
	h.must(err)
	h.eventually(3*time.Minute, "the lost node is not Ready", func() error {
		n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, otherName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return boolError(c.Status == corev1.ConditionUnknown, "Ready is %s: %s", c.Status, c.Message)
			}
		}
		return fmt.Errorf("it has no condition Ready")
	})
	// The old one is to go, and nobody there hears of it.
	h.eventually(3*time.Minute, "another takes the lost pod's place", func() error {
		list, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		ready, going := 0, false
		for _, p := range list.Items {
			if p.Spec.NodeName == nodeName && isReady(&p) {
				ready++
			}
			going = going || p.UID == lost.UID && p.DeletionTimestamp != nil
		}
		return boolError(ready == 2 && going, "%d are ready here, the lost one goes: %v", ready, going)
	})
	_, err = other.Space.Shell(h.ctx, "ip link set eth0 up; ip route replace default via "+h.inst.LANAddress(1))
	h.must(err)
	h.must(h.stack.WaitForNode(h.ctx, otherName))
	h.waitGone(lost.Name, 2*time.Minute)
}
