package node_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/polylet/polylet/test/harness/images"
)

func boolError(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// app is a pod with one container of the test image, bound to the test's node.
func app(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			NodeName:                      nodeName,
			TerminationGracePeriodSeconds: ptr(int64(5)),
			Containers: []corev1.Container{{
				Name: "app", Image: images.TestApp, Args: args, ImagePullPolicy: corev1.PullIfNotPresent,
			}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// webApp is app with an HTTP server and a readiness probe.
func webApp(name string) *corev1.Pod {
	p := app(name, "http", "port=8080")
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")}},
		// A machine that stands still for seconds has not made the pod unready.
		PeriodSeconds: 1, FailureThreshold: 3, TimeoutSeconds: 10,
	}
	return p
}

// takesSignals has a pod Ready only once its program, which must know ready=, does
// with signals what it shall: before, SIGTERM ends it.
func takesSignals(p *corev1.Pod) *corev1.Pod {
	c := &p.Spec.Containers[0]
	c.Args = append(c.Args, "ready=/ready")
	c.StartupProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/testapp", "stat", "path=/ready"}}},
		PeriodSeconds: 1, FailureThreshold: 600, TimeoutSeconds: 10,
	}
	return p
}

func ptr[T any](v T) *T { return &v }

func (h *house) create(pods ...*corev1.Pod) {
	h.Helper()
	for _, p := range pods {
		_, err := h.cluster.Client.CoreV1().Pods(p.Namespace).Create(h.ctx, p, metav1.CreateOptions{})
		h.must(err)
	}
}

func (h *house) pod(name string) (*corev1.Pod, error) {
	return h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(h.ctx, name, metav1.GetOptions{})
}

// waitReady waits until the pod is Ready and returns it.
func (h *house) waitReady(name string, within time.Duration) *corev1.Pod {
	h.Helper()
	var got *corev1.Pod
	h.eventually(within, name+" is Ready", func() error {
		p, err := h.pod(name)
		if err != nil {
			return err
		}
		got = p
		return boolError(isReady(p), "%s", describe(p))
	})
	return got
}

// waitGone waits until the pod object does not exist.
func (h *house) waitGone(name string, within time.Duration) {
	h.Helper()
	h.eventually(within, name+" is gone", func() error {
		p, err := h.pod(name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is still there: %s", describe(p))
	})
}

func (h *house) delete(name string) {
	h.Helper()
	h.must(h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(h.ctx, name, metav1.DeleteOptions{}))
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// readySince is when a pod that is Ready became so.
func readySince(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// describe is one line about where a pod stands.
func describe(p *corev1.Pod) string {
	text := fmt.Sprintf("pod %s: phase %q reason %q message %q deleted %v", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message, p.DeletionTimestamp != nil)
	for _, s := range p.Status.ContainerStatuses {
		text += fmt.Sprintf("; container %s ready %v restarts %d", s.Name, s.Ready, s.RestartCount)
		switch {
		case s.State.Waiting != nil:
			text += " waiting " + s.State.Waiting.Reason + " " + s.State.Waiting.Message
		case s.State.Terminated != nil:
			text += fmt.Sprintf(" terminated %s code %d", s.State.Terminated.Reason, s.State.Terminated.ExitCode)
		}
	}
	return text
}

// kubectl runs the real kubectl as the administrator.
func (h *house) kubectl(args ...string) (string, error) {
	cmd := h.kubectlCommand(args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), err
}

func (h *house) kubectlCommand(args ...string) *exec.Cmd {
	return exec.CommandContext(h.ctx, h.cluster.Kubectl, append([]string{"--kubeconfig", h.cluster.AdminKubeconfig}, args...)...)
}

// events returns the reasons and messages of a pod's events.
func (h *house) events(name string) string {
	list, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return err.Error()
	}
	var text []string
	for _, e := range list.Items {
		text = append(text, e.Type+" "+e.Reason+": "+e.Message)
	}
	return strings.Join(text, "\n")
}
