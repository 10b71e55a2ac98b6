package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	dynamicConfig = "/var/lib/kubelet/dynamic-config"
	assignedMap   = "nodes"
	// configAnnotation begins the names of what the Node says of its configuration.
	configAnnotation = "polylet.dev/configuration"
	// rebooted is there once the machine has been told to start again.
	rebooted = "/var/lib/polylet-rebooted"
	// beforeReboot is the test that does.
	beforeReboot = "TestJoinedTheClusterConfiguresTheNodeOverJumpsOfTheClock"
)

func isRebooted() bool { _, err := os.Stat(rebooted); return err == nil }

// TestJoinedTheClusterConfiguresTheNodeOverJumpsOfTheClock is the first, and its end is the
// machine's, in the middle of a change: like that of a power supply.
func TestJoinedTheClusterConfiguresTheNodeOverJumpsOfTheClock(t *testing.T) {
	began := time.Now()
	client := joinedCluster(t)
	letNodesRead(t, client)
	steady := bind("steady", "sleep")
	steady.Spec.RestartPolicy = corev1.RestartPolicyAlways
	create(t, client, steady)
	before := runs(t, client, "steady").Status.ContainerStatuses[0]
	eventually(t, "the file's configuration is good", func() error { return stands("Good", "", 1) })

	first := assign(t, client, "maxPods: 77\n")
	annotate(t, client, "kube-system/"+assignedMap)
	eventually(t, "it is tried", func() error { return stands("Trying", "", 2) })
	tried := time.Now() // by the monotonic clock
	jump(t, "+2 hours")
	saysOnNode(t, client, map[string]string{"-assigned": first, "-active": first, "-last-known-good": first, "-error": ""})
	if took := time.Since(tried); took < 40*time.Second {
		t.Errorf("it was good after %s: the clock's jump counted", took)
	}
	takes(t, client, "77")

	second := assign(t, client, "maxPods: 78\nkubeReserved: {memory: 10000Gi}\n") // no machine has it
	eventually(t, "it is tried", func() error { return stands("Trying", "", 3) })
	jump(t, "-2 hours")
	saysOnNode(t, client, map[string]string{"-assigned": second, "-active": first, "-last-known-good": first, "-error": "kubeReserved"})
	eventually(t, "it went back", func() error { return stands("WentBack", "kubeReserved", 0) })
	takes(t, client, "77")

	started := processes(t)
	third := assign(t, client, "maxPods: 78\nstaticPodPath: /tmp\n")
	saysOnNode(t, client, map[string]string{"-assigned": third, "-active": first, "-error": "staticPodPath"})
	fourth := assign(t, client, "maxPods: 77\ncontainerLogMaxFiles: 3\n") // which podsync takes while it runs
	saysOnNode(t, client, map[string]string{"-assigned": fourth, "-active": fourth, "-last-known-good": fourth, "-error": ""})
	if now := processes(t); fmt.Sprint(now) != fmt.Sprint(started) {
		t.Errorf("the processes were %v and are %v", started, now)
	}
	after := runs(t, client, "steady").Status.ContainerStatuses[0]
	if before.ContainerID != after.ContainerID || after.RestartCount != 0 {
		t.Errorf("the container was %s, is %s after %d restarts", before.ContainerID, after.ContainerID, after.RestartCount)
	}

	last := assign(t, client, "maxPods: 79\n")
	_, version, _ := strings.Cut(last, "@")
	eventually(t, "the last one is active", func() error {
		raw, err := os.ReadFile(dynamicConfig + "/active.json")
		if err != nil || !strings.Contains(string(raw), `"resourceVersion":"`+version+`"`) {
			return fmt.Errorf("%s %w", raw, err)
		}
		return nil
	})
	if err := stands("Trying", "", 0); err != nil {
		t.Errorf("not in the middle of a change: %v", err)
	}
	if t.Failed() {
		return
	}
	if err := os.WriteFile(rebooted, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("--- PASS: %s (%.2fs)\n", beforeReboot, time.Since(began).Seconds())
	if err := run("systemctl", "reboot", "--force", "--force"); err != nil {
		t.Fatal(err)
	}
	select {} // the machine is gone
}

func TestJoinedWhatTheClusterHadAssignedIsThereAfterTheReboot(t *testing.T) {
	if !isRebooted() {
		t.Skip("the machine has not started again: " + beforeReboot + " has it do so")
	}
	client := joinedCluster(t)
	m, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), assignedMap, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last := "kube-system/" + assignedMap + "@" + m.ResourceVersion
	eventually(t, "it is good", func() error { return stands("Good", "", 1) })
	saysOnNode(t, client, map[string]string{"-assigned": last, "-active": last, "-last-known-good": last, "-error": ""})
	takes(t, client, "79")
	runs(t, client, "steady")
	annotate(t, client, "")
	saysOnNode(t, client, map[string]string{"-assigned": "", "-active": "", "-last-known-good": "", "-error": ""})
	takes(t, client, "110")
	goes(t, client, "steady")
}

// jump sets the machine's clock.
func jump(t *testing.T, by string) {
	t.Helper()
	was := time.Now().Round(0)
	if err := run("date", "-s", by); err != nil {
		t.Fatal(err)
	}
	if now := time.Now().Round(0); now.Sub(was).Abs() < time.Hour {
		t.Fatalf("the clock was %s and is %s", was, now)
	}
}

// letNodesRead is the Role of docs/configuration.md.
func letNodesRead(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "node-configuration", Namespace: metav1.NamespaceSystem}
	_, err := client.RbacV1().Roles(meta.Namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{assignedMap}, Verbs: []string{"get", "list", "watch"},
	}}}, metav1.CreateOptions{})
	_, bindErr := client.RbacV1().RoleBindings(meta.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, bindErr); err != nil {
		t.Fatal(err)
	}
}

// assign writes the ConfigMap, and returns what annotations call this version of it.
func assign(t *testing.T, client kubernetes.Interface, fields string) string {
	t.Helper()
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: assignedMap}, Data: map[string]string{
		"kubelet": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields,
	}}
	written, err := configMaps.Update(t.Context(), m, metav1.UpdateOptions{})
	if err != nil {
		written, err = configMaps.Create(t.Context(), m, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return "kube-system/" + assignedMap + "@" + written.ResourceVersion
}

// annotate names the ConfigMap on the Node; empty: none.
func annotate(t *testing.T, client kubernetes.Interface, value string) {
	t.Helper()
	var set any
	if value != "" {
		set = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{configAnnotation: set}}})
	if err == nil {
		_, err = client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// saysOnNode waits for what the Node says of its configuration; of an error a part.
func saysOnNode(t *testing.T, client kubernetes.Interface, want map[string]string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the Node says %v", want), func() error {
		n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for suffix, value := range want {
			got := n.Annotations[configAnnotation+suffix]
			part := suffix == "-error" && value != "" && strings.Contains(got, value)
			if got != value && !part {
				return fmt.Errorf("%s is %q", suffix, got)
			}
		}
		return nil
	})
}

// takes waits until the Node has room for so many pods.
func takes(t *testing.T, client kubernetes.Interface, pods string) {
	t.Helper()
	eventually(t, "the Node takes "+pods+" pods", func() error {
		n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := n.Status.Capacity[corev1.ResourcePods]; got.String() != pods {
			return fmt.Errorf("%s", got.String())
		}
		return nil
	})
}
