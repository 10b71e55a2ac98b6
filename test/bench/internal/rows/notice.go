package rows

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
)

// Rows of what an agent notices.
const (
	rowReadiness = "HTTP readiness, period 1 s: Running → Ready, ms"
	rowFlips     = "exec readiness, period 1 s: the command's answer changed → reported, ms"
	rowKilled    = "container killed → running again and reported, ms"
	rowConfigMap = "ConfigMap changed → file changed, ms"
	rowSecret    = "Secret changed → file changed, ms"
)

func httpProbe(period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}},
		PeriodSeconds: period,
	}
}

// readiness times one pod after the other from Running to Ready.
func (m *rows) readiness(ctx context.Context) error {
	for _, name := range numbered("web", 0, m.s.Samples) {
		pod := stage.Pod(name)
		pod.Spec.Containers[0].Args = []string{"http", "port=8080"}
		pod.Spec.Containers[0].ReadinessProbe = httpProbe(rowPeriod)
		runs, isUp := m.pods.when(name, running), m.pods.when(name, ready)
		if err := m.create(ctx, pod); err != nil {
			return err
		}
		from, err := moment(ctx, "pod "+name+" is Running", runs)
		if err != nil {
			return err
		}
		to, err := moment(ctx, "pod "+name+" is Ready", isUp)
		if err != nil {
			return err
		}
		m.c.Add(rowReadiness, report.Milliseconds(to.Sub(from)))
		if err := m.down(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// flips changes what an exec probe finds, at any moment of its period.
func (m *rows) flips(ctx context.Context) error {
	pod := stage.Pod("flips")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	app := &pod.Spec.Containers[0]
	app.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	app.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/testapp", "stat", "path=/data/ready"}}},
		PeriodSeconds: rowPeriod, TimeoutSeconds: 10, FailureThreshold: 1,
	}
	runs := m.pods.when(pod.Name, running)
	if err := m.create(ctx, pod); err != nil {
		return err
	}
	if _, err := moment(ctx, "pod flips is Running", runs); err != nil {
		return err
	}
	file := filepath.Join(m.volume(m.pods.pod(pod.Name), "empty-dir", "data"), "ready")
	for n := range 2*m.s.Samples + 1 {
		change, want, to := os.WriteFile, ready, "Ready"
		if n%2 == 1 {
			change, want, to = func(path string, _ []byte, _ os.FileMode) error { return os.Remove(path) }, notReady, "not Ready"
		}
		began := time.Now()
		if err := change(file, nil, 0o644); err != nil {
			return fmt.Errorf("change what the probe finds: %w", err)
		}
		at, err := moment(ctx, "pod flips is "+to, m.pods.when(pod.Name, want))
		if err != nil {
			return err
		}
		// The first is the end of a start, where a probe may be tried more often.
		if n > 0 {
			m.c.Add(rowFlips, report.Milliseconds(at.Sub(began)))
		}
		if err := stage.Sleep(ctx, time.Second+rand.N(time.Second)); err != nil {
			return err
		}
	}
	return m.down(ctx, pod.Name)
}

// killed kills each container once, so that no back-off is due.
func (m *rows) killed(ctx context.Context) error {
	for _, name := range numbered("victim", 0, m.s.Samples) {
		pod, err := m.up(ctx, stage.Pod(name))
		if err != nil {
			return err
		}
		if err := stage.Sleep(ctx, time.Second+rand.N(time.Second)); err != nil {
			return err
		}
		pid, err := m.pidOf(ctx, pod)
		if err != nil {
			return err
		}
		was := pod.Status.ContainerStatuses[0].ContainerID
		again := m.pods.when(name, func(p *corev1.Pod) bool {
			if p == nil || len(p.Status.ContainerStatuses) == 0 {
				return false
			}
			cs := p.Status.ContainerStatuses[0]
			return cs.RestartCount == 1 && cs.State.Running != nil && cs.ContainerID != was
		})
		began := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill the container of %s: %w", name, err)
		}
		at, err := moment(ctx, "the container of "+name+" runs again", again)
		if err != nil {
			return err
		}
		m.c.Add(rowKilled, report.Milliseconds(at.Sub(began)))
		if err := m.down(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// pidOf asks the runtime for the first process of the pod's container.
func (m *rows) pidOf(ctx context.Context, pod *corev1.Pod) (int, error) {
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	st, err := m.st.Runtime.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, fmt.Errorf("ask for the process of pod %s: %w", pod.Name, err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(st.Info["info"]), &info); err != nil || info.Pid <= 1 {
		return 0, fmt.Errorf("the runtime names no process for pod %s: %v, %q", pod.Name, err, st.Info["info"])
	}
	return info.Pid, nil
}

// files changes a ConfigMap and a Secret of each of some pods, spread over a
// while, and reads their files on the node, which the containers see.
func (m *rows) files(ctx context.Context) error {
	names := numbered("files", 0, max(m.s.Samples/2, 1))
	if _, err := stage.Each(names, func(name string) error { return m.fileUp(ctx, name) }); err != nil {
		return err
	}
	if err := stage.Sleep(ctx, stage.Settle); err != nil {
		return err
	}
	var mu sync.Mutex
	if _, err := stage.Each(names, func(name string) error {
		if err := stage.Sleep(ctx, rand.N(10*time.Second)); err != nil {
			return err
		}
		return m.fileChange(ctx, name, &mu)
	}); err != nil {
		return err
	}
	return m.remove(ctx, "files", len(names))
}

func (m *rows) fileUp(ctx context.Context, name string) error {
	core := m.st.Cluster.Client.CoreV1()
	meta := metav1.ObjectMeta{Name: name}
	if _, err := core.ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "0"}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ConfigMap %s: %w", name, err)
	}
	if _, err := core.Secrets(metav1.NamespaceDefault).Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": "0"}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Secret %s: %w", name, err)
	}
	pod := stage.Pod(name)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "map", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "map", MountPath: "/map"}, {Name: "secret", MountPath: "/secret"}}
	_, err := m.up(ctx, pod)
	return err
}

func (m *rows) fileChange(ctx context.Context, name string, mu *sync.Mutex) error {
	core := m.st.Cluster.Client.CoreV1()
	pod := m.pods.pod(name)
	meta := metav1.ObjectMeta{Name: name}
	for _, change := range []struct {
		row, dir string
		do       func(value string) error
	}{
		{rowConfigMap, m.volume(pod, "configmap", "map"), func(value string) error {
			_, err := core.ConfigMaps(metav1.NamespaceDefault).Update(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": value}}, metav1.UpdateOptions{})
			return err
		}},
		{rowSecret, m.volume(pod, "secret", "secret"), func(value string) error {
			_, err := core.Secrets(metav1.NamespaceDefault).Update(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": value}}, metav1.UpdateOptions{})
			return err
		}},
	} {
		value := strconv.FormatInt(time.Now().UnixNano(), 10)
		began := time.Now()
		if err := change.do(value); err != nil {
			return fmt.Errorf("change what %s is of: %w", change.dir, err)
		}
		if err := waitFile(ctx, filepath.Join(change.dir, "key"), value); err != nil {
			return err
		}
		took := time.Since(began)
		mu.Lock() // several pods are timed at once
		m.c.Add(change.row, report.Milliseconds(took))
		mu.Unlock()
	}
	return nil
}

// waitFile reads the file until it has the content: a watch of another's
// directory would cost the agent nothing less.
func waitFile(ctx context.Context, path, want string) error {
	ctx, cancel := context.WithTimeout(ctx, rowWithin)
	defer cancel()
	for {
		data, err := os.ReadFile(path)
		if err == nil && string(data) == want {
			return nil
		}
		if stage.Sleep(ctx, 5*time.Millisecond) != nil {
			return fmt.Errorf("%s has not got its new content within %s (%v)", path, rowWithin, err)
		}
	}
}

// volume is the directory of a pod's volume on the node.
func (m *rows) volume(pod *corev1.Pod, plugin, name string) string {
	return filepath.Join(m.st.Node.RootDir, "pods", string(pod.UID), "volumes", "kubernetes.io~"+plugin, name)
}
