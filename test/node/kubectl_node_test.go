package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/images"
)

func kubectlDebugPod(h *house) {
	h.create(app("patient", "sleep"))
	h.waitReady("patient", time.Minute)
	h.answers("input\n", "input\n/testapp sleep \ntestapp\n", nil, "debug", "patient", "-i", "--quiet", "--image="+images.BusyBox, "--target=app", "-c", "doctor",
		"--", "sh", "-c", `read word; echo $word; tr '\0' ' ' < /proc/1/cmdline; echo; ls -d /proc/1/root/testapp | grep -o '[a-z]*$'; sleep 2`)
	s := h.inTerminal(nil, "debug", "patient", "-it", "--image="+images.BusyBox, "--target=app", "-c", "surgeon", "--", "sh")
	s.types("ps -o pid,args | grep testap[p]; echo seen $((40+2))")
	s.sees(`1 /testapp sleep\r\nseen 42\r\n`)
	s.types("exit")
	if code := s.ends(); code != 0 {
		h.Errorf("kubectl debug -it ends with %d", code)
	}
	// A privileged one in a sandbox that was made for a pod without any.
	h.answers("go\n", "go\nmounted\n", nil, "debug", "patient", "-i", "--quiet", "--image="+images.BusyBox, "--profile=sysadmin", "-c", "chief",
		"--", "sh", "-c", "read word; echo $word; mkdir /t && mount -t tmpfs none /t && echo mounted; sleep 2")
	p, err := h.pod("patient")
	h.must(err)
	if len(p.Status.EphemeralContainerStatuses) != 3 || p.Status.ContainerStatuses[0].RestartCount != 0 || !isReady(p) {
		h.Errorf("after all: %d ephemeral containers; %s", len(p.Status.EphemeralContainerStatuses), describe(p))
	}
	got := h.kubectlRan(nil, nil, "debug", "patient", "--copy-to=copy", "--image="+images.BusyBox, "--container=aside", "--share-processes", "--", "sh", "-c", idle)
	if got.code != 0 {
		h.Errorf("debug of a copy: %+v", got)
	}
	h.waitReady("copy", time.Minute)
	if got := h.kubectlRan(nil, nil, "exec", "copy", "-c", "aside", "--", "ps", "-o", "args"); !strings.Contains(got.stdout, "/testapp sleep\n") {
		h.Errorf("the copy's processes are %+v", got)
	}
	h.delete("copy")
	h.delete("patient")
}

func kubectlDebugNode(h *house) {
	h.must(os.WriteFile(h.inst.Path("on-the-host"), []byte("a file of the host\n"), 0o644))
	h.answers("go\n", "go\na file of the host\nsees the test\n", nil, "debug", "node/"+nodeName, "-i", "--quiet", "--image="+images.BusyBox, "--profile=general",
		"--", "sh", "-c", fmt.Sprintf("read word; echo $word; cat /host%s; test -d /proc/%d && echo sees the test; sleep 2", h.inst.Path("on-the-host"), os.Getpid()))
	pods, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{})
	h.must(err)
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, "node-debugger-"+nodeName) {
			h.delete(p.Name)
			h.waitGone(p.Name, time.Minute)
			return
		}
	}
	h.Error("there is no pod of the debugger")
}

// lastAct is the script of a container that notes when it was told to end and
// takes three seconds more.
const lastAct = `trap 'date +%s > /out/told; sleep 3; date +%s > /out/ended; exit 0' TERM; echo waiting; while true; do sleep 3600 & wait $!; done`

func kubectlDrain(h *house) {
	out := h.inst.Path("drained")
	h.must(os.Mkdir(out, 0o777))
	h.drainable(out)
	got := h.kubectlRan(nil, nil, "drain", nodeName, "--ignore-daemonsets", "--timeout=10s")
	for _, want := range []string{"cannot delete", "default/lonely", "default/scratch"} {
		if got.code != 1 || !strings.Contains(got.stderr, want) {
			h.Errorf("drain of what would be lost: %+v, want %q", got, want)
		}
	}
	got = h.kubectlRan(nil, nil, "drain", nodeName, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--grace-period=60", "--timeout=4m")
	if got.code != 0 || !strings.Contains(got.stdout, "node/"+nodeName+" drained\n") || !strings.Contains(got.stdout, "pod/lonely evicted\n") {
		h.Errorf("drain: %+v", got)
	}
	told, ended := h.seconds(filepath.Join(out, "told")), h.seconds(filepath.Join(out, "ended"))
	if ended-told < 3 {
		h.Errorf("the container was told at %d and ended at %d: it was not let end by itself", told, ended)
	}
	h.onlyTheDaemonIsLeft()
	if got := h.kubectlRan(nil, nil, "uncordon", nodeName); got.code != 0 || got.stdout != "node/"+nodeName+" uncordoned\n" {
		h.Errorf("uncordon: %+v", got)
	}
	if got := h.kubectlRan(nil, nil, "rollout", "status", "deployment/served", "--timeout=2m"); got.code != 0 {
		h.Errorf("after uncordon: %+v", got)
	}
	h.prints("deployment.apps \"served\" deleted from default namespace\n", "delete", "deployment", "served", "--cascade=foreground", "--timeout=2m")
	h.prints("daemonset.apps \"daemon\" deleted from default namespace\n", "delete", "daemonset", "daemon", "--cascade=foreground", "--timeout=2m")
}

// drainable makes a pod of each kind that drain treats otherwise.
func (h *house) drainable(out string) {
	h.Helper()
	lonely := shellPod("lonely", lastAct)
	lonely.Spec.TerminationGracePeriodSeconds = ptr(int64(2)) // drain gives it more
	lonely.Spec.Volumes = []corev1.Volume{{Name: "out", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: out}}}}
	lonely.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "out", MountPath: "/out"}}
	scratch := shellPod("scratch", idle)
	scratch.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	scratch.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	h.create(lonely, scratch)
	template := func(name string) corev1.PodTemplateSpec {
		p := webApp(name)
		p.Spec.NodeName, p.Spec.Tolerations = "", nil
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: p.Spec}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	apps := h.cluster.Client.AppsV1()
	_, err := apps.Deployments(metav1.NamespaceDefault).Create(h.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "served"},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr(int32(2)), Selector: selector("served"), Template: template("served")},
	}, metav1.CreateOptions{})
	h.must(err)
	_, err = apps.DaemonSets(metav1.NamespaceDefault).Create(h.ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon"},
		Spec:       appsv1.DaemonSetSpec{Selector: selector("daemon"), Template: template("daemon")},
	}, metav1.CreateOptions{})
	h.must(err)
	h.waitReady("lonely", time.Minute)
	h.waitReady("scratch", time.Minute)
	for _, what := range []string{"deployment/served", "daemonset/daemon"} {
		if got := h.kubectlRan(nil, nil, "rollout", "status", what, "--timeout=2m"); got.code != 0 {
			h.Fatalf("rollout of %s: %+v", what, got)
		}
	}
}

// onlyTheDaemonIsLeft wants no pod bound to the node but the DaemonSet's.
func (h *house) onlyTheDaemonIsLeft() {
	h.Helper()
	pods, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	h.must(err)
	daemons := 0
	for _, p := range pods.Items {
		if p.Labels["app"] != "daemon" {
			h.Errorf("left on the node: %s", describe(&p))
			continue
		}
		daemons++
		if !isReady(&p) || p.Status.ContainerStatuses[0].RestartCount != 0 {
			h.Errorf("the daemon was touched: %s", describe(&p))
		}
	}
	if daemons != 1 {
		h.Errorf("%d pods of the daemon are left, want 1", daemons)
	}
}

// seconds reads what `date +%s` has written.
func (h *house) seconds(file string) int64 {
	h.Helper()
	data, err := os.ReadFile(file)
	h.must(err)
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	h.must(err)
	return n
}
