package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/polylet/polylet/test/harness/images"
)

// node is this machine's Node, by its host name; systemGroup is a cgroup that nobody else
// has.
const (
	node        = "polylet-vm"
	systemGroup = "/machine-system"
	// ran names the tests that have begun: when the machine starts again, they do not.
	ran = "/var/lib/polylet-ran"
)

// setUpJoined is setUp of a node of a cluster, with all that guards its memory; logind
// runs, too. After the reboot all of it is there, and polylet's units have started by
// themselves.
func setUpJoined() error {
	if begun, err := os.ReadFile(ran); err == nil {
		flag.Parse()
		again := flag.Set("test.skip", "^("+strings.Join(strings.Fields(string(begun)), "|")+")$")
		return errors.Join(serveImages(), run("systemctl", "start", "containerd.service", "systemd-logind.service"), again)
	}
	kubeconfig, err := os.ReadFile(payload + "/node.kubeconfig")
	if err != nil {
		return err
	}
	if err := serveImages(); err != nil {
		return err
	}
	if err := writeAll(map[string]string{
		"/etc/containerd/config.toml":       containerdConfig(true, images.Pause) + withUsers,
		"/etc/cni/net.d/10-bridge.conflist": network,
		"/etc/kubernetes/kubelet.conf":      string(kubeconfig),
		"/var/lib/kubelet/config.yaml":      guarded(),
		"/etc/default/kubelet":              "KUBELET_EXTRA_ARGS=--node-ip=10.0.2.15 --config-deadline=45s --dynamic-config-dir=" + dynamicConfig + "\n",
		manifests + "/.made":                "",
	}); err != nil {
		return err
	}
	// The machine is made without it, for it boots faster so.
	if err := os.Remove("/etc/systemd/system/systemd-logind.service"); err != nil {
		return err
	}
	if err := runAll([][]string{{"systemctl", "daemon-reload"}, {"systemctl", "start", "containerd.service", "systemd-logind.service"}}); err != nil {
		return err
	}
	return install()
}

func guarded() string {
	return `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
cgroupRoot: /
systemCgroups: ` + systemGroup + `
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: ` + manifests + `
readOnlyPort: 10255
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 1Gi, nodefs.available: 1%, imagefs.available: 1%}
evictionPressureTransitionPeriod: 10s
featureGates: {MemoryQoS: true, QOSReserved: true}
memoryReservationPolicy: TieredReservation
memoryThrottlingFactor: 0.5
qosReserved: {memory: 50%}
shutdownGracePeriodByPodPriority:
- {priority: 0, shutdownGracePeriodSeconds: 20}
- {priority: 1000, shutdownGracePeriodSeconds: 20}
- {priority: 2000000000, shutdownGracePeriodSeconds: 20}
`
}

// withUsers gives containerd a second runtime, for pods with a user namespace.
const withUsers = `[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.` + users + `]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.` + users + `.options]
    SystemdCgroup = true
    BinaryName = "` + payload + `/bin/runc-users"
`

// joinedCluster is the cluster as its administrator sees it.
func joinedCluster(t *testing.T) kubernetes.Interface {
	t.Helper()
	begun, err := os.OpenFile(ran, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(begun, t.Name())
		err = errors.Join(err, begun.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", payload+"/admin.kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// bind is a pod of the apiserver's that is bound to this node.
func bind(name string, args ...string) *corev1.Pod {
	p := testPod(name, "", "", "", "")
	p.Spec.NodeName, p.Spec.RestartPolicy = node, corev1.RestartPolicyNever
	p.Spec.AutomountServiceAccountToken = new(bool)
	p.Spec.Containers[0].Args = args
	return &p
}

func create(t *testing.T, client kubernetes.Interface, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// runs waits until the apiserver says that a pod is Ready.
func runs(t *testing.T, client kubernetes.Interface, name string) (got *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+name+" Ready in the apiserver", func() (err error) {
		if got, err = client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("status %+v", got.Status)
	})
	return got
}

// goes deletes pods and waits until they are gone.
func goes(t *testing.T, client kubernetes.Interface, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		eventually(t, "pod "+name+" gone from the apiserver", func() error {
			_, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is still there"))
		})
	}
}

func class(ctx context.Context, client kubernetes.Interface, name string, value int32) error {
	_, err := client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
	return err
}
