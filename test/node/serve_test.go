package node_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/images"
)

func TestAPodOfTheApiserverBecomesReadyAnswersAndGoes(t *testing.T) {
	h := build(t, plan{})
	h.create(webApp("web"))
	p := h.waitReady("web", time.Minute)
	if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" || p.Status.HostIP != h.node.Address {
		t.Errorf("status is wrong: phase %s, pod address %q, host address %q", p.Status.Phase, p.Status.PodIP, p.Status.HostIP)
	}
	if body := h.get("http://" + p.Status.PodIP + ":8080/hostname"); strings.TrimSpace(body) != "web" {
		t.Errorf("the pod's host name is %q", body)
	}
	token := h.get("http://" + p.Status.PodIP + ":8080/files/var/run/secrets/kubernetes.io/serviceaccount/token")
	if strings.Count(token, ".") != 2 {
		t.Errorf("the projected token is %.40q", token)
	}
	h.delete("web")
	h.waitGone("web", time.Minute)
}

func TestLogsExecAndPortForwardWorkThroughTheApiserver(t *testing.T) {
	h := build(t, plan{})
	h.create(webApp("web"))
	h.waitReady("web", time.Minute)
	h.eventually(time.Minute, "the log has the server's first words", func() error {
		out, err := h.kubectl("logs", "web")
		return boolError(err == nil && strings.Contains(out, "serving HTTP on"), "%v: %q", err, out)
	})
	out, err := h.kubectl("exec", "web", "--", "/testapp", "stat", "path=/testapp")
	h.must(err)
	if !strings.Contains(out, "mode=0755") {
		t.Errorf("exec prints %q", out)
	}
	if _, err := h.kubectl("exec", "web", "--", "/testapp", "false"); err == nil || !strings.Contains(err.Error(), "exit code 1") {
		t.Errorf("exec of a failing command gives %v, want its exit code", err)
	}
	cat := h.kubectlCommand("exec", "-i", "web", "--", "/testapp", "cat")
	cat.Stdin = strings.NewReader("through and back")
	echoed, err := cat.Output()
	h.must(err)
	if string(echoed) != "through and back" {
		t.Errorf("exec with input prints %q", echoed)
	}
	h.checkPortForward("web")
	h.checkFollow()
}

// checkPortForward fetches a page through kubectl port-forward.
func (h *house) checkPortForward(pod string) {
	h.Helper()
	cmd := h.kubectlCommand("port-forward", "pod/"+pod, ":8080")
	out, err := cmd.StdoutPipe()
	h.must(err)
	h.must(cmd.Start())
	defer func() {
		cmd.Process.Kill() // it may have ended
		cmd.Wait()         // killed
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	h.must(err)
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(line)
	if port == nil {
		h.Fatalf("kubectl port-forward prints %q", line)
	}
	if body := h.get("http://127.0.0.1:" + port[1] + "/healthz"); strings.TrimSpace(body) != "ok" {
		h.Errorf("through port-forward: %q", body)
	}
}

// checkFollow follows the logs of a pod that writes slowly until it has ended.
func (h *house) checkFollow() {
	h.Helper()
	writer := app("writer", "logs", "lines=20", "rate=10", "size=5")
	h.create(writer)
	h.waitReady("writer", time.Minute)
	cmd := h.kubectlCommand("logs", "-f", "writer")
	out, err := cmd.StdoutPipe()
	h.must(err)
	h.must(cmd.Start())
	lines := bufio.NewScanner(out)
	count := 0
	for count < 20 && lines.Scan() {
		count++
	}
	cmd.Process.Kill() // it may have ended
	cmd.Wait()         // killed
	if count != 20 {
		h.Errorf("followed %d lines of 20", count)
	}
}

func TestAStaticPodRunsAndHasAMirror(t *testing.T) {
	h := build(t, plan{})
	h.must(h.node.AddStaticPod("web.yaml", staticManifest("static-web", "http", "port=8080")))
	name := "static-web-" + nodeName
	p := h.waitReady(name, time.Minute)
	if p.Annotations["kubernetes.io/config.mirror"] == "" || p.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("annotations of the mirror: %v", p.Annotations)
	}
	h.must(h.removeStaticPod("web.yaml"))
	h.waitGone(name, time.Minute)
	h.eventually(time.Minute, "its sandbox is gone", func() error { return h.noSandboxOf("static-web-" + nodeName) })
}

func TestAStandaloneNodeRunsAStaticPod(t *testing.T) {
	h := build(t, plan{standalone: true, supervised: true})
	h.must(h.node.AddStaticPod("web.yaml", staticManifest("alone", "http", "port=8080")))
	h.eventually(time.Minute, "the pod answers", func() error {
		ip, err := h.sandboxIP("alone-" + nodeName)
		if err != nil {
			return err
		}
		_, err = h.tryGet("http://" + ip + ":8080/healthz")
		return err
	})
	h.eventually(time.Minute, "/pods shows it Ready", func() error {
		pods, err := h.nodePods()
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Name == "alone-"+nodeName && isReady(&p) {
				return nil
			}
		}
		return fmt.Errorf("/pods has %d pods, none is it and Ready", len(pods.Items))
	})
}

func TestADeploymentIsScaledUpAndDown(t *testing.T) {
	h := build(t, plan{controllers: true})
	template := webApp("x")
	template.Spec.NodeName = ""
	labels := map[string]string{"app": "scaled"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "scaled"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	}
	deployments := h.cluster.Client.AppsV1().Deployments(metav1.NamespaceDefault)
	_, err := deployments.Create(h.ctx, d, metav1.CreateOptions{})
	h.must(err)
	for _, want := range []int32{1, 6, 2, 0} {
		_, err := h.kubectl("scale", "deployment/scaled", fmt.Sprintf("--replicas=%d", want))
		h.must(err)
		h.eventually(90*time.Second, fmt.Sprintf("%d replicas are ready and no more exist", want), func() error {
			got, err := deployments.Get(h.ctx, "scaled", metav1.GetOptions{})
			if err != nil {
				return err
			}
			pods, err := h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{LabelSelector: "app=scaled"})
			if err != nil {
				return err
			}
			ok := got.Status.ReadyReplicas == want && len(pods.Items) == int(want)
			return boolError(ok, "%d ready, %d pods exist", got.Status.ReadyReplicas, len(pods.Items))
		})
	}
}

func TestAContainerThatExitsIsRestartedAndCounted(t *testing.T) {
	h := build(t, plan{})
	p := webApp("crash")
	h.create(p)
	ready := h.waitReady("crash", time.Minute)
	h.tryGet("http://" + ready.Status.PodIP + ":8080/exit?code=7") // the server dies on it
	h.eventually(time.Minute, "it is restarted and Ready", func() error {
		p, err := h.pod("crash")
		if err != nil {
			return err
		}
		s := p.Status.ContainerStatuses[0]
		ok := s.RestartCount == 1 && isReady(p) && s.LastTerminationState.Terminated != nil && s.LastTerminationState.Terminated.ExitCode == 7
		return boolError(ok, "%s; last state %+v", describe(p), s.LastTerminationState)
	})
}

func TestAJobsPodSucceedsWithItsLastWords(t *testing.T) {
	h := build(t, plan{})
	p := app("job", "exit", "code=0", "message=done and gone")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	h.create(p)
	h.eventually(time.Minute, "it has succeeded", func() error {
		p, err := h.pod("job")
		if err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("%s", describe(p))
		}
		if got := p.Status.ContainerStatuses[0].State.Terminated.Message; got != "done and gone" {
			t.Errorf("the termination message is %q", got)
		}
		return nil
	})
	h.delete("job")
	h.waitGone("job", time.Minute)
}

func TestConfigMapsAndSecretsReachTheContainerAndFollowChanges(t *testing.T) {
	h := build(t, plan{})
	maps := h.cluster.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "blue"}}
	_, err := maps.Create(h.ctx, config, metav1.CreateOptions{})
	h.must(err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, StringData: map[string]string{"word": "sesame"}}
	_, err = h.cluster.Client.CoreV1().Secrets(metav1.NamespaceDefault).Create(h.ctx, secret, metav1.CreateOptions{})
	h.must(err)
	h.create(configuredPod())
	base := "http://" + h.waitReady("configured", time.Minute).Status.PodIP + ":8080"
	if env := h.get(base + "/env"); !strings.Contains(env, "WORD=sesame\n") || !strings.Contains(env, "MY_NAME=configured\n") {
		t.Errorf("environment lacks the secret or the pod's name:\n%s", env)
	}
	for path, want := range map[string]string{"/files/etc/settings/color": "blue", "/files/etc/info/labels": `tier="test"`} {
		if got := h.get(base + path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	config.Data["color"] = "green"
	_, err = maps.Update(h.ctx, config, metav1.UpdateOptions{})
	h.must(err)
	h.eventually(2*time.Minute, "the changed ConfigMap reaches its file", func() error {
		got, err := h.tryGet(base + "/files/etc/settings/color")
		if err != nil {
			return err
		}
		return boolError(got == "green", "it is %q", got)
	})
}

func configuredPod() *corev1.Pod {
	p := webApp("configured")
	p.Labels = map[string]string{"tier": "test"}
	c := &p.Spec.Containers[0]
	c.Env = []corev1.EnvVar{
		{Name: "WORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "hidden"}, Key: "word"}}},
		{Name: "MY_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "settings", MountPath: "/etc/settings"}, {Name: "info", MountPath: "/etc/info"}, {Name: "scratch", MountPath: "/scratch"},
	}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	return p
}

func staticManifest(name string, args ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: %s
    args: ["%s"]
`, name, images.TestApp, strings.Join(args, `", "`))
}

func (h *house) get(url string) string {
	h.Helper()
	body, err := h.tryGet(url)
	h.must(err)
	return body
}

func (h *house) tryGet(url string) (string, error) {
	ctx, cancel := context.WithTimeout(h.ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, res.Status, body)
	}
	return string(body), err
}
