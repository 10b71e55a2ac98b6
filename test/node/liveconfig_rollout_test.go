package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestARolloutReachesBothNodesAndStopsAtTheFirstThatDoesNotRunIt runs the script of
// docs/configuration.md as it stands there, for a ConfigMap that all nodes run and for one
// that none does.
func TestARolloutReachesBothNodesAndStopsAtTheFirstThatDoesNotRunIt(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet has no source in the cluster any more")
	}
	flags := func() []string {
		return []string{"--config-deadline=5s", "--dynamic-config-dir=" + filepath.Join(t.TempDir(), "dynamic")}
	}
	h, _ := buildTwoWith(t, flags(), flags())
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DaemonSetSpec{Selector: webSelector, Template: webTemplate()}}
	_, err := h.cluster.Client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(h.ctx, set, metav1.CreateOptions{})
	h.must(err)
	before := h.onNodes(3*time.Minute, map[string]int{nodeName: 1, otherName: 1})
	h.letNodesRead("nodes-v2", "nodes-v3")
	out, err := h.kubectl("get", "nodes", "-o", "name")
	h.must(err)
	names := strings.Fields(strings.ReplaceAll(out, "node/", ""))
	if len(names) != 2 {
		t.Fatalf("the nodes are %q", names)
	}

	good := h.writeConfigMap("nodes-v2", "maxPods: 130\n")
	if out, err := h.rollOut("kube-system/nodes-v2"); err != nil || strings.Count(out, "runs "+good+" well") != 2 {
		t.Fatalf("the good one: %v\n%s", err, out)
	}
	for _, name := range names {
		h.awaitAnnotationsOf(name, map[string]string{"": "kube-system/nodes-v2", "-assigned": good, "-active": good, "-last-known-good": good, "-error": ""})
		h.eventually(30*time.Second, name+" takes 130 pods", func() error { return h.takesPodsOn(name, "130") })
	}

	bad := h.writeConfigMap("nodes-v3", "maxPods: 131\nkubeReserved: {memory: 10000Gi}\n") // no machine has it
	out, err = h.rollOut("kube-system/nodes-v3")
	if err == nil || !strings.Contains(out, "node/"+names[0]+": ") || !strings.Contains(out, "kubeReserved") || strings.Contains(out, "node/"+names[1]) {
		t.Errorf("the bad one: %v\n%s", err, out)
	}
	h.awaitAnnotationsOf(names[0], map[string]string{"": "kube-system/nodes-v3", "-assigned": bad, "-active": good, "-last-known-good": good, "-error": "kubeReserved"})
	h.awaitAnnotationsOf(names[1], map[string]string{"": "kube-system/nodes-v2", "-assigned": good, "-active": good, "-last-known-good": good, "-error": ""})
	for _, name := range names {
		h.eventually(30*time.Second, name+" takes 130 pods still", func() error { return h.takesPodsOn(name, "130") })
	}

	if out, err := h.rollOut("kube-system/nodes-v2"); err != nil {
		t.Errorf("the way back of all: %v\n%s", err, out)
	}
	h.awaitAnnotationsOf(names[0], map[string]string{"-assigned": good, "-active": good, "-error": ""})
	for name, pod := range h.onNodes(time.Minute, map[string]int{nodeName: 1, otherName: 1}) {
		was, is := before[name].Status.ContainerStatuses[0], pod.Status.ContainerStatuses[0]
		if was.ContainerID != is.ContainerID || is.RestartCount != 0 {
			t.Errorf("on %s the container was %s, is %s after %d restarts", name, was.ContainerID, is.ContainerID, is.RestartCount)
		}
	}
}

// rollOut runs the script of docs/configuration.md for a ConfigMap.
func (h *house) rollOut(config string) (string, error) {
	h.Helper()
	page, err := os.ReadFile("../../docs/configuration.md")
	h.must(err)
	const begins = "```sh\nconfig=kube-system/nodes-v2\n"
	_, rest, found := strings.Cut(string(page), begins)
	script, _, ends := strings.Cut(rest, "```\n")
	if !found || !ends {
		h.Fatalf("docs/configuration.md has no script that begins with %q", begins)
	}
	cmd := exec.CommandContext(h.ctx, "sh", "-c", "config="+config+"\n"+script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.cluster.AdminKubeconfig, "PATH="+filepath.Dir(h.cluster.Kubectl)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	h.Logf("the rollout of %s: %v\n%s", config, err, out)
	return string(out), err
}
