package node_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/polylet/polylet/test/harness/images"
)

// TestWhatPodsAreMadeOf plays small stories on one node, one after the other.
func TestWhatPodsAreMadeOf(t *testing.T) {
	whole := build(t, plan{})
	whole.play([]story{
		{"every kind of probe makes its pod Ready", everyProbe},
		{"a failed liveness probe restarts the container and says why", failedLiveness},
		{"a command that takes longer than its probe may fails it, though what it started goes on", slowCommand},
		{"a startup probe holds the others back", startupHoldsBack},
		{"readiness follows its probe both ways", readinessFollows},
		{"init containers run in order and a sidecar lives beside the main one", initAndSidecar},
		{"a failing init container keeps the pod from starting", failingInit},
		{"containers of a pod share an emptyDir and see the host's directory", sharedVolumes},
		{"a volume lies within a volume of files, and a file over one of its files", nestedVolumes},
		{"hooks run after the start and before the end", hooks},
		{"attach reaches the input of a running container", attach},
		{"on-failure restarts end with the first success", onFailure},
		{"a pod on the host's network has the node's address", hostNetwork},
		{"user and fsGroup are what the pod says", securityContext},
		{"a container cannot fill the node's disk with its hosts file", hostsFilled},
		{"the deadline ends a pod and says so", deadline},
		{"a pod that does not fit the node is rejected with a reason", rejected},
		{"a missing ConfigMap is named and its coming heals the pod", missingConfigMap},
		{"a crashing container is restarted with growing delays", crashLoop},
	})
}

func everyProbe(h *house) {
	handlers := map[string]corev1.ProbeHandler{
		"http": {HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}},
		"tcp":  {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
		"grpc": {GRPC: &corev1.GRPCAction{Port: 8080}},
		"exec": {Exec: &corev1.ExecAction{Command: []string{"/testapp", "true"}}},
	}
	for kind, handler := range handlers {
		args := []string{kind, "port=8080"}
		if kind == "exec" {
			args = []string{"sleep"}
		}
		p := app("probe-"+kind, args...)
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: handler, PeriodSeconds: 1}
		h.create(p)
	}
	for kind := range handlers {
		h.waitReady("probe-"+kind, time.Minute)
		h.delete("probe-" + kind)
	}
}

func failedLiveness(h *house) {
	p := webApp("sick")
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}},
		PeriodSeconds: 1, FailureThreshold: 2, TimeoutSeconds: 10,
	}
	h.create(p)
	ready := h.waitReady("sick", time.Minute)
	h.get("http://" + ready.Status.PodIP + ":8080/unhealthy")
	h.eventually(40*time.Second, "it is restarted and Ready", func() error {
		p, err := h.pod("sick")
		if err != nil {
			return err
		}
		return boolError(p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p), "%s", describe(p))
	})
	h.eventually(time.Minute, "the events say why", func() error {
		events := h.events("sick")
		return boolError(strings.Contains(events, "Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 503") &&
			strings.Contains(events, "Killing: "), "events are:\n%s", events)
	})
	h.delete("sick")
}

// The runtime kills the shell when the time is over, and answers when what the shell
// has started lets go of its output.
func slowCommand(h *house) {
	p := app("slow-command")
	c := &p.Spec.Containers[0]
	c.Image, c.Command, c.Args = images.BusyBox, []string{"sleep", "600"}, nil
	c.LivenessProbe = &corev1.Probe{
		ProbeHandler:   corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "sleep 6; true"}}},
		TimeoutSeconds: 1, FailureThreshold: 1, TerminationGracePeriodSeconds: ptr[int64](1),
	}
	h.create(p)
	h.eventually(time.Minute, "it is restarted", func() error {
		p, err := h.pod("slow-command")
		if err != nil {
			return err
		}
		s := p.Status.ContainerStatuses
		return boolError(len(s) > 0 && s[0].RestartCount == 1, "%s", describe(p))
	})
	h.eventually(time.Minute, "the events say why", func() error {
		events := h.events("slow-command")
		return boolError(strings.Contains(events, "Unhealthy: Liveness probe failed: command timed out"), "events are:\n%s", events)
	})
	h.delete("slow-command")
}

func startupHoldsBack(h *house) {
	p := app("slow-start", "http", "port=8080", "delay=4s")
	get := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}
	p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: get, PeriodSeconds: 1, FailureThreshold: 30, TimeoutSeconds: 10}
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: get, PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 10}
	h.create(p)
	ready := h.waitReady("slow-start", time.Minute)
	s := ready.Status.ContainerStatuses[0]
	if s.RestartCount != 0 || s.Started == nil || !*s.Started {
		h.Errorf("restarts %d, started %v", s.RestartCount, s.Started)
	}
	h.delete("slow-start")
}

func readinessFollows(h *house) {
	h.create(webApp("moody"))
	base := "http://" + h.waitReady("moody", time.Minute).Status.PodIP + ":8080"
	h.get(base + "/unhealthy")
	h.eventually(20*time.Second, "it is not Ready any more", func() error {
		p, err := h.pod("moody")
		if err != nil {
			return err
		}
		return boolError(!isReady(p), "%s", describe(p))
	})
	h.get(base + "/healthy")
	if p := h.waitReady("moody", 20*time.Second); p.Status.ContainerStatuses[0].RestartCount != 0 {
		h.Errorf("readiness restarted it: %s", describe(p))
	}
	h.delete("moody")
}

func initAndSidecar(h *house) {
	p := app("ordered", "sleep")
	mount := []corev1.VolumeMount{{Name: "notes", MountPath: "/notes"}}
	p.Spec.Volumes = []corev1.Volume{{Name: "notes", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Spec.InitContainers = []corev1.Container{
		{Name: "first", Image: images.BusyBox, Command: []string{"sh", "-c", "echo one > /notes/log"}, VolumeMounts: mount},
		{Name: "side", Image: images.TestApp, Args: []string{"http", "port=9090"}, VolumeMounts: mount, RestartPolicy: ptr(corev1.ContainerRestartPolicyAlways)},
		{Name: "second", Image: images.BusyBox, Command: []string{"sh", "-c", "echo two >> /notes/log"}, VolumeMounts: mount},
	}
	h.create(p)
	ready := h.waitReady("ordered", time.Minute)
	h.eventually(time.Minute, "the sidecar shows what the init containers left", func() error { // it may not listen yet
		got, err := h.tryGet("http://" + ready.Status.PodIP + ":9090/files/notes/log")
		if err != nil {
			return err
		}
		return boolError(got == "one\ntwo\n", "they left %q", got)
	})
	for n, s := range ready.Status.InitContainerStatuses {
		sidecar := s.Name == "side"
		if done := s.State.Terminated != nil; done == sidecar {
			h.Errorf("init container %d %s: state %+v", n, s.Name, s.State)
		}
	}
	h.delete("ordered")
	h.waitGone("ordered", time.Minute)
}

func failingInit(h *house) {
	p := app("blocked", "sleep")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.InitContainers = []corev1.Container{{Name: "no", Image: images.TestApp, Args: []string{"exit", "code=3"}}}
	h.create(p)
	h.eventually(time.Minute, "the pod has failed and its main container never ran", func() error {
		p, err := h.pod("blocked")
		if err != nil {
			return err
		}
		ok := p.Status.Phase == corev1.PodFailed && p.Status.ContainerStatuses[0].ContainerID == ""
		return boolError(ok, "%s", describe(p))
	})
	h.delete("blocked")
}

func sharedVolumes(h *house) {
	dir, err := h.inst.Mkdir("host-dir")
	h.must(err)
	h.must(os.WriteFile(dir+"/from-host", []byte("hello"), 0o644))
	p := webApp("sharing")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "both", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: ptr(corev1.HostPathDirectory)}}},
	}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "both", MountPath: "/both"}, {Name: "host", MountPath: "/host", ReadOnly: true}}
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: "writer", Image: images.BusyBox, Command: []string{"sh", "-c", "echo shared > /both/note; sleep 3600"},
		VolumeMounts: []corev1.VolumeMount{{Name: "both", MountPath: "/both"}},
	})
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(1))
	h.create(p)
	base := "http://" + h.waitReady("sharing", time.Minute).Status.PodIP + ":8080"
	h.eventually(time.Minute, "the note is there", func() error {
		got, err := h.tryGet(base + "/files/both/note")
		if err != nil {
			return err
		}
		return boolError(got == "shared\n", "it is %q", got)
	})
	if got := h.get(base + "/files/host/from-host"); got != "hello" {
		h.Errorf("the host's file is %q", got)
	}
	h.delete("sharing")
	h.waitGone("sharing", time.Minute)
}

func hooks(h *house) {
	dir, err := h.inst.Mkdir("hooks")
	h.must(err)
	p := app("hooked", "sleep")
	p.Spec.Volumes = []corev1.Volume{{Name: "out", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}}
	c := &p.Spec.Containers[0]
	c.VolumeMounts = []corev1.VolumeMount{{Name: "out", MountPath: "/out"}}
	write := func(name string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/testapp", "write", "path=/out/" + name, "text=done"}}}
	}
	c.Lifecycle = &corev1.Lifecycle{PostStart: write("started"), PreStop: write("stopping")}
	h.create(p)
	h.waitReady("hooked", time.Minute)
	if _, err := os.Stat(dir + "/started"); err != nil {
		h.Errorf("the pod is Ready and its postStart hook has not run: %v", err)
	}
	h.delete("hooked")
	h.waitGone("hooked", time.Minute)
	if _, err := os.Stat(dir + "/stopping"); err != nil {
		h.Errorf("the preStop hook has not run: %v", err)
	}
}

func attach(h *house) {
	// The runtime may lose what a container says at the moment of its end.
	p := shellPod("listener", "cat; sleep 2")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers[0].Stdin, p.Spec.Containers[0].StdinOnce = true, true
	h.create(p)
	h.waitReady("listener", time.Minute)
	cmd := h.kubectlCommand("attach", "-i", "-q", "listener")
	cmd.Stdin = strings.NewReader("knock knock\n")
	out, err := cmd.CombinedOutput()
	h.must(err)
	if !strings.Contains(string(out), "knock knock") {
		h.Errorf("attach prints %q", out)
	}
	h.eventually(time.Minute, "the end of the input ends it", func() error {
		p, err := h.pod("listener")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodSucceeded, "%s", describe(p))
	})
	h.delete("listener")
}

func onFailure(h *house) {
	p := app("trying", "x")
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	p.Spec.Volumes = []corev1.Volume{{Name: "notes", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Spec.Containers[0] = corev1.Container{
		Name: "app", Image: images.BusyBox, Command: []string{"sh", "-c", "test -e /notes/tried && exit 0; touch /notes/tried; exit 4"},
		VolumeMounts: []corev1.VolumeMount{{Name: "notes", MountPath: "/notes"}},
	}
	h.create(p)
	h.eventually(90*time.Second, "the second try succeeds", func() error {
		p, err := h.pod("trying")
		if err != nil {
			return err
		}
		ok := p.Status.Phase == corev1.PodSucceeded && p.Status.ContainerStatuses[0].RestartCount == 1
		return boolError(ok, "%s", describe(p))
	})
	h.delete("trying")
}

func hostNetwork(h *house) {
	p := app("on-host", "sleep")
	p.Spec.HostNetwork = true
	h.create(p)
	ready := h.waitReady("on-host", time.Minute)
	if ready.Status.PodIP != h.node.Address {
		h.Errorf("its address is %s, the node's is %s", ready.Status.PodIP, h.node.Address)
	}
	h.delete("on-host")
}

func securityContext(h *house) {
	p := webApp("user")
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr(int64(1234)), RunAsGroup: ptr(int64(2345)), FSGroup: ptr(int64(3456)), RunAsNonRoot: ptr(true)}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	h.create(p)
	base := "http://" + h.waitReady("user", time.Minute).Status.PodIP + ":8080"
	status := h.get(base + "/files/proc/self/status")
	for _, want := range []string{"Uid:\t1234\t", "Gid:\t2345\t"} {
		if !strings.Contains(status, want) {
			h.Errorf("the process has no %q", want)
		}
	}
	if out, err := h.kubectl("exec", "user", "--", "/testapp", "stat", "path=/data"); err != nil || !strings.Contains(out, "gid=3456") {
		h.Errorf("the volume: %v %s", err, out)
	}
	h.delete("user")
}

// hostsFilled: the file is the node's, and root in the container may write to it
// (CVE-2020-8557). It writes on until the pod is deleted.
func hostsFilled(h *house) {
	const filled, atMost = 64 << 20, 2 << 20
	p := app("hostile", "sleep")
	p.Spec.Containers[0].Image = images.BusyBox
	p.Spec.Containers[0].Args = nil
	p.Spec.Containers[0].Command = []string{"sh", "-c", fmt.Sprintf("while :; do dd if=/dev/zero bs=1M count=%d >> /etc/hosts; touch /tmp/filled; sleep 3; done", filled>>20)}
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/tmp/filled"}}}, PeriodSeconds: 1,
	}
	h.create(p)
	ready := h.waitReady("hostile", time.Minute)
	file := h.inst.Path("kubelet", "pods", string(ready.UID), "etc-hosts")
	h.eventually(time.Minute, "the hosts file is small again", func() error {
		info, err := os.Stat(file)
		return boolError(err == nil && info.Size() <= atMost, "%v, %v", info, err)
	})
	hosts, err := os.ReadFile(file)
	h.must(err)
	if !strings.Contains(string(hosts), ready.Status.PodIP) {
		h.Errorf("the pod's own address is lost: %.200q", hosts)
	}
	h.forceDelete("hostile")
	h.waitGone("hostile", time.Minute)
}

func deadline(h *house) {
	p := app("late", "sleep")
	p.Spec.ActiveDeadlineSeconds = ptr(int64(2))
	h.create(p)
	h.eventually(time.Minute, "it has failed with DeadlineExceeded", func() error {
		p, err := h.pod("late")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DeadlineExceeded", "%s", describe(p))
	})
	h.delete("late")
	h.waitGone("late", time.Minute)
}

func rejected(h *house) {
	p := app("elsewhere", "sleep")
	p.Spec.NodeSelector = map[string]string{"planet": "mars"}
	h.create(p)
	h.eventually(time.Minute, "it has failed with NodeAffinity", func() error {
		p, err := h.pod("elsewhere")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed && p.Status.Reason == "NodeAffinity", "%s", describe(p))
	})
	h.delete("elsewhere")
	h.waitGone("elsewhere", time.Minute)
}

func missingConfigMap(h *house) {
	p := app("needy", "sleep")
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "not-yet"}, Key: "x",
	}}}}
	h.create(p)
	h.eventually(time.Minute, "the status names it", func() error {
		p, err := h.pod("needy")
		if err != nil {
			return err
		}
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" && strings.Contains(w.Message, "not-yet") {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(p))
	})
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "not-yet"}, Data: map[string]string{"x": "y"}}
	_, err := h.cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(h.ctx, cm, metav1.CreateOptions{})
	h.must(err)
	h.waitReady("needy", 2*time.Minute)
	h.delete("needy")
}

func nestedVolumes(h *house) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf"}, Data: map[string]string{"own": "own", "hidden": "below", "other": "above"}}
	_, err := h.cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(h.ctx, cm, metav1.CreateOptions{})
	h.must(err)
	p := shellPod("nested", `test "$(cat /etc/conf/own)" = own && test "$(cat /etc/conf/hidden)" = above && echo x > /etc/conf/cache/deep/file && ! echo x > /etc/conf/new`)
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}
	p.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: source}, {Name: "over", VolumeSource: source}, {Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
		{Name: "conf", MountPath: "/etc/conf"}, {Name: "cache", MountPath: "/etc/conf/cache/deep"}, {Name: "over", MountPath: "/etc/conf/hidden", SubPath: "other"},
	}
	h.create(p)
	h.eventually(time.Minute, "it has seen all of it", func() error {
		p, err := h.pod("nested")
		if err == nil && p.Status.Phase != corev1.PodSucceeded {
			err = fmt.Errorf("%s", describe(p))
		}
		return err
	})
	h.delete("nested")
}

func crashLoop(h *house) {
	p := app("looping", "exit", "code=9")
	h.create(p)
	h.eventually(90*time.Second, "it waits in CrashLoopBackOff after two restarts", func() error {
		p, err := h.pod("looping")
		if err != nil {
			return err
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount >= 2 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff" &&
				s.LastTerminationState.Terminated != nil && s.LastTerminationState.Terminated.ExitCode == 9 {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(p))
	})
	h.delete("looping")
	h.waitGone("looping", time.Minute)
}
