package vm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/test/harness/hogs"
)

const (
	// edge is how long a node is kept at its edge; edgeVariable has another duration.
	edge         = 3 * time.Minute
	edgeVariable = "POLYLET_EDGE"
	// edgeMay is what all pods may use together, in MiB, and edgeKeep what of it has to be left.
	edgeMay, edgeKeep = 400, 100
)

// TestJoinedAHogThatIsMadeAnewIsEvictedEachTimeAndNobodyElse is test/node's, on cgroup v2 with
// systemd's driver: there is no controller in this cluster, and the test makes the pods of its
// ReplicaSet.
func TestJoinedAHogThatIsMadeAnewIsEvictedEachTimeAndNobodyElse(t *testing.T) {
	client, long := joinedCluster(t), edge
	if text := os.Getenv(edgeVariable); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	before := reconfigure(t, plainMemory(map[string]string{
		"evictionHard":                     fmt.Sprintf("{memory.available: %dMi, nodefs.available: 1%%, imagefs.available: 1%%}", edgeKeep),
		"kubeReserved":                     fmt.Sprintf("{memory: %dMi}", machine(t)-edgeMay),
		"evictionPressureTransitionPeriod": "", // the default is five minutes
	}), "")
	defer restart(t, before)
	wantNoPressure(t, client)
	steady := bind("steady", "sleep")
	steady.Spec.RestartPolicy = corev1.RestartPolicyAlways
	steady.Spec.Containers[0].Resources = testPod("", "50m", "64Mi", "50m", "64Mi").Spec.Containers[0].Resources
	create(t, client, steady)
	runs(t, client, "steady")
	made := replicaSet(t, client, "hog")

	agents, watched := processes(t), watchNode(t, client)
	var hog string
	evicted, n := 0, 0
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(time.Second) { // A real node.
		if p, err := client.CoreV1().Pods("default").Get(t.Context(), hog, metav1.GetOptions{}); hog == "" || err == nil && p.Status.Phase == corev1.PodFailed {
			if hog != "" && p.Status.Reason != "Evicted" {
				t.Errorf("%s: %s %s, %+v", hog, p.Status.Reason, p.Status.Message, p.Status.ContainerStatuses)
			}
			if hog != "" {
				evicted++
				t.Logf("%s after its creation %s is seen to be evicted", time.Since(p.CreationTimestamp.Time).Round(time.Second), hog)
			}
			n++
			hog = fmt.Sprintf("hog-%d", n)
			create(t, client, made(hog))
		}
		if p, err := client.CoreV1().Pods("default").Get(t.Context(), "steady", metav1.GetOptions{}); err == nil && (p.Status.Phase != corev1.PodRunning || containerOf(p, "app").RestartCount != 0) {
			t.Fatalf("the pod that uses what it asked for: %+v", p.Status)
		}
		if now := processes(t); !maps.Equal(now, agents) {
			t.Fatalf("the processes were %v and are %v", agents, now)
		}
	}
	for _, problem := range watched() {
		t.Error(problem)
	}
	most := hogs.EvictionsWithin(long)
	t.Logf("%d were evicted in %s", evicted, long)
	if evicted < 2 || evicted > most {
		t.Errorf("%d were evicted in %s; between 2 and %d were to be", evicted, long, most)
	}
	if err := saysWhyItWaits(t, client); err != nil {
		t.Error(err)
	}
	for i := range n {
		goes(t, client, fmt.Sprintf("hog-%d", i+1))
	}
	goes(t, client, "steady")
	wantNoPressure(t, client)
}

// replicaSet creates one of which nobody takes care, and returns who makes a pod of it that
// uses more memory than there is, and is admitted though the node is short.
func replicaSet(t *testing.T, client kubernetes.Interface, name string) func(pod string) *corev1.Pod {
	t.Helper()
	pattern := func(pod string) *corev1.Pod {
		p := bind(pod, "take", fmt.Sprintf("mebibytes=%d", edgeMay-edgeKeep+30))
		p.Labels = map[string]string{"app": name}
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
		return p
	}
	model := pattern("")
	set, err := client.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: model.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: model.Labels}, Spec: model.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func(pod string) *corev1.Pod {
		p := pattern(pod)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		return p
	}
}

// saysWhyItWaits wants a person to be told why a hog is not started.
func saysWhyItWaits(t *testing.T, client kubernetes.Interface) error {
	t.Helper()
	all := events(t, client, "reason=BackOff")
	said := false
	for i := range all {
		said = said || all[i].Type == corev1.EventTypeWarning && strings.Contains(all[i].Message, "pods of ReplicaSet hog because it was low on memory, and still has MemoryPressure")
	}
	if !said {
		return fmt.Errorf("no event says that a hog waits: %+v", all)
	}
	for _, p := range podsOf(t, client) {
		if p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, what := range []string{p.Namespace + "/" + p.Name, "node"} {
			out, err := exec.Command("/usr/bin/polylet", "explain", what).CombinedOutput()
			if err == nil && !strings.Contains(string(out), "pods of ReplicaSet hog") {
				err = errors.New("it does not say why the pod waits")
			}
			if err != nil {
				return fmt.Errorf("polylet explain %s: %w\n%s", what, err, out)
			}
		}
	}
	return nil
}
