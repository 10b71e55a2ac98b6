package vm

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/polylet/polylet/internal/testkit/selfsigned"
	"github.com/polylet/polylet/test/harness/images"
)

// reach is the node's API, as kubectl reaches it.
func reach(path string, query url.Values) (*url.URL, *rest.Config) {
	u, err := url.Parse(secure)
	if err != nil {
		panic(err)
	}
	u.Path, u.RawQuery = path, query.Encode()
	return u, &rest.Config{Host: secure, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// execute runs a command in the only container of a pod.
func execute(t *testing.T, pod, input string, command ...string) (string, error) {
	t.Helper()
	u, config := reach("/exec/default/"+pod+"/app", url.Values{"command": command, "input": {"1"}, "output": {"1"}, "error": {"1"}})
	executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	var out, wrong bytes.Buffer
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &wrong})
	if wrong.Len() > 0 {
		err = errors.Join(err, errors.New(wrong.String()))
	}
	return out.String(), err
}

// TestAPodIsReachedThroughTheNode: exec with its input and its exit code, logs,
// port-forward; and a readiness probe over the network and by a command.
func TestAPodIsReachedThroughTheNode(t *testing.T) {
	p := testPod("reached", "", "", "", "")
	p.Spec.Containers[0].Image = images.BusyBox
	p.Spec.Containers[0].Args = nil
	p.Spec.Containers[0].Command = []string{"sh", "-c", "echo said at the start; mkdir /www; echo hello >/www/index.html; exec httpd -f -p 8080 -h /www"}
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-s", "/www/index.html"}}}, TimeoutSeconds: 60}
	apply(t, p)
	defer remove(t, "reached")
	name := ready(t, "reached").Name

	if out, err := execute(t, name, "from outside", "cat"); err != nil || out != "from outside" {
		t.Errorf("exec gives back %q, %v", out, err)
	}
	var exit utilexec.CodeExitError
	if _, err := execute(t, name, "", "sh", "-c", "exit 7"); !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("exec of what ends with 7: %v", err)
	}
	if logs, err := get(secure + "/containerLogs/default/" + name + "/app"); err != nil || string(logs) != "said at the start\n" {
		t.Errorf("the log is %q, %v", logs, err)
	}
	if page, err := forwarded(t, name); err != nil || page != "hello\n" {
		t.Errorf("through port-forward: %q, %v", page, err)
	}
}

// forwarded is the page that a pod serves, through port-forward.
func forwarded(t *testing.T, pod string) (string, error) {
	t.Helper()
	u, config := reach("/portForward/default/"+pod, nil)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	stop, opened, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:8080"}, stop, opened, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return "", err
	case <-opened:
	}
	defer func() {
		close(stop)
		<-ended
	}()
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	page, err := get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
	return string(page), err
}

// TestPodsyncsCapabilitiesAreEnoughForVolumes: each kind that a pod without an
// apiserver can have, for a user without root, with an fsGroup that nobody has.
func TestPodsyncsCapabilitiesAreEnoughForVolumes(t *testing.T) {
	if err := write("/srv/volumes/theirs", "of the host"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chown("/srv/volumes", 4001, 4001), os.Chmod("/srv/volumes", 0o700)); err != nil {
		t.Fatal(err)
	}
	p := testPod("volumes", "", "", "", "64Mi")
	user, group := int64(4001), int64(4002)
	p.Annotations = map[string]string{"said": "in an annotation"}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &user, FSGroup: &group}
	c := &p.Spec.Containers[0]
	c.Image, c.Args, c.Command = images.BusyBox, nil, []string{"sh", "-c", "trap 'exit 0' TERM; sleep 100000 & wait"}
	c.Env = []corev1.EnvVar{{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}
	mode, made, file := int32(0o440), corev1.HostPathDirectoryOrCreate, corev1.HostPathFileOrCreate
	fields := []corev1.DownwardAPIVolumeFile{{Path: "in/said", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['said']"}}}
	source := func(name string, from corev1.VolumeSource) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: from})
	}
	source("disk", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	source("memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
	source("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/volumes"}})
	source("made", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/made/here", Type: &made}})
	source("file", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/volumes/empty", Type: &file}})
	source("fields", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: fields, DefaultMode: &mode}})
	source("projected", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: fields}}}}})
	for _, v := range p.Spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/v/" + v.Name})
	}
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: "disk", MountPath: "/v/sub", SubPath: "a/b"},
		corev1.VolumeMount{Name: "disk", MountPath: "/v/expanded", SubPathExpr: "of/$(NAME)"},
		corev1.VolumeMount{Name: "host", MountPath: "/v/part", SubPath: "theirs", ReadOnly: true})
	apply(t, p)
	defer remove(t, "volumes")
	name := ready(t, "volumes").Name
	for command, want := range map[string]string{
		"echo 1 >/v/disk/f && stat -c '%g %a' /v/disk && stat -c '%u %g' /v/disk/f": "4002 2777\n4001 4002\n",
		"echo 1 >/v/memory/f && stat -f -c %T /v/memory && stat -c %g /v/memory/f":  "tmpfs\n4002\n",
		"cat /v/host/theirs /v/part":                    "of the hostof the host",
		"stat -c '%u %a %F' /v/made":                    "0 755 directory\n",
		"stat -c '%u %a %s' /v/file":                    "0 644 0\n",
		"cat /v/fields/in/said /v/projected/in/said":    "in an annotationin an annotation",
		"stat -L -c '%g %a' /v/projected/in/said":       "4002 440\n",
		"echo 2 >/v/sub/f && cat /v/disk/a/b/f":         "2\n",
		"echo 3 >/v/expanded/f && cat /v/disk/of/*/f":   "3\n",
		"grep -c " + name + " /etc/hosts /etc/hostname": "/etc/hosts:1\n/etc/hostname:1\n",
	} {
		if out, err := execute(t, name, "", "sh", "-c", command); err != nil || out != want {
			t.Errorf("%s: %q, want %q (%v)", command, out, want, err)
		}
	}
}

// TestAHandoutThatRunsAsItsUnitRenewsTheCopies changes what it copies from.
func TestAHandoutThatRunsAsItsUnitRenewsTheCopies(t *testing.T) {
	const ca, copied = "/etc/kubernetes/pki/ca.crt", "/run/polylet/gateway/client-ca.crt"
	authority := func(name string) string { // what is none is not copied
		cert, _ := selfsigned.PEM(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}})
		return string(cert)
	}
	first, second := authority("first"), authority("second")
	becomes := func(want string) {
		t.Helper()
		eventually(t, copied+" "+want, func() error {
			got, err := os.ReadFile(copied)
			if err == nil && string(got) != want {
				err = fmt.Errorf("it holds %q", got)
			}
			return err
		})
	}
	if err := errors.Join(write(ca, first), write("/var/lib/kubelet/config.yaml",
		strings.Replace(configuration("systemd"), "authentication: {", "authentication: {x509: {clientCAFile: "+ca+"}, ", 1))); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := write("/var/lib/kubelet/config.yaml", configuration("systemd")); err != nil {
			t.Error(err)
		}
	}()
	becomes(first)
	if err := write(ca, second); err != nil {
		t.Fatal(err)
	}
	becomes(second)
	for path, want := range map[string]string{copied: "root polylet-gateway 640", filepath.Dir(copied): "root polylet-gateway 750"} {
		if out, err := exec.Command("stat", "-c", "%U %G %a", path).Output(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s is %s, want %s (%v)", path, out, want, err)
		}
	}
	if got := property(t, "polylet-handout.service", "NRestarts"); got != "0" {
		t.Errorf("handout was restarted %s times", got)
	}
}

// TestAnUpgradeLeavesThePodsAlone: what deploy/systemd/README.md says, and the
// whole slice.
func TestAnUpgradeLeavesThePodsAlone(t *testing.T) {
	apply(t, testPod("kept", "", "", "", ""))
	defer remove(t, "kept")
	before := ready(t, "kept")
	all := []string{"restart", "polylet-handout.service"}
	for _, s := range services {
		all = append(all, "polylet-"+s+".service")
	}
	for _, command := range [][]string{all, {"restart", "polylet.slice"}} {
		pid := property(t, "polylet-podsync.service", "MainPID")
		if err := run("systemctl", command...); err != nil {
			t.Fatal(err)
		}
		eventually(t, "healthz", func() error { _, err := get(healthz); return err })
		for _, s := range append([]string{"handout"}, services...) {
			if state := property(t, "polylet-"+s+".service", "ActiveState"); state != "active" {
				t.Errorf("after %v %s is %s", command, s, state)
			}
		}
		if now := property(t, "polylet-podsync.service", "MainPID"); now == pid || now == "0" {
			t.Errorf("%v did not restart podsync", command)
		}
		after := ready(t, "kept").Status.ContainerStatuses[0]
		if was := before.Status.ContainerStatuses[0]; was.ContainerID != after.ContainerID || after.RestartCount != 0 {
			t.Errorf("after %v the container is %s, was %s", command, after.ContainerID, was.ContainerID)
		}
	}
}

// TestTheJournalIsQuiet looks, once the others have run, for what no run should
// leave: system calls that a filter lacks (SIGSYS ends who makes one here),
// panics, starts that failed, and errors over and over.
func TestTheJournalIsQuiet(t *testing.T) {
	out, err := exec.CommandContext(context.Background(), "journalctl", "--no-pager", "-b", "-o", "short", "_PID=1", "+", "_TRANSPORT=kernel", "+", "_EXE=/usr/bin/polylet").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "Started polylet-podsync.service") {
		t.Fatal("the journal does not even have the start of podsync")
	}
	loud := regexp.MustCompile(`status=31/SYS|SIGSYS|type=1326|panic:|SIGABRT|Failed to start polylet|polylet-\S+: Failed with result '(resources|watchdog|timeout|exit-code|core-dump|oom-kill)'`)
	errorsOf := map[string]int{}
	for line := range strings.Lines(string(out)) {
		if loud.MatchString(line) {
			t.Errorf("%s", line)
		}
		if found := regexp.MustCompile(`polylet\[\d+\]: E\d+ \S+ +\d+ (\S+)\]`).FindStringSubmatch(line); found != nil {
			switch errorsOf[found[1]]++; errorsOf[found[1]] {
			case 1:
				t.Logf("the first from there: %s", line)
			case 10:
				t.Errorf("ten times or more: %s", line)
			}
		}
	}
	t.Logf("errors by place: %v", errorsOf)
}
