// Package deploy tests the ways to run a node that deploy/ offers, each with
// its real supervisor. It must never have files of its own where deploy/ has them.
package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/realtest"
	"github.com/polylet/polylet/test/harness/stack"
)

const sample = `apiVersion: v1
kind: Pod
metadata:
  name: hello
spec:
  containers:
  - name: web
    image: %s
    args: [http, port=8080]
    readinessProbe:
      httpGet: {path: /healthz, port: 8080}
      periodSeconds: 1
`

// needDocker skips without root and POLYLET_NODE_TESTS, and installs Debian's
// engine and docker-compose 1.29 when they are missing. A machine where / is no
// shared mount, which the node's mounts need, gets it shared until its next boot.
func needDocker(t *testing.T) {
	t.Helper()
	realtest.Asked(t, "installs and starts a docker engine")
	if os.Getuid() != 0 {
		t.Skip("installs and starts a docker engine; run it as root")
	}
	if err := install.SharedRoot(); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"dockerd", "docker-compose"} {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		for _, args := range [][]string{{"update", "-qq"}, {"-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", "docker.io", "docker-compose"}} {
			command := exec.CommandContext(t.Context(), "apt-get", args...)
			command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if out, err := command.CombinedOutput(); err != nil {
				t.Fatalf("apt-get %v, for %s: %v\n%s", args, program, err, out)
			}
		}
	}
}

// engine starts a docker engine of the test's own and returns its address.
func engine(t *testing.T, i *instance.Instance) string {
	t.Helper()
	dir, err := i.Mkdir("docker")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "docker.sock")
	p := process.New(process.Config{
		Name: "dockerd", Path: "/usr/sbin/dockerd", LogFile: filepath.Join(dir, "log"), ReadyWithin: 2 * time.Minute, StopWithin: 30 * time.Second,
		Args: []string{
			"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"),
			"-H", "unix://" + socket, "--iptables=false", "--bridge=none",
		},
		Ready: func(ctx context.Context) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if err != nil {
				return err
			}
			return conn.Close()
		},
	})
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return "unix://" + socket
}

// freePorts asks the kernel for ports that nobody uses.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// configuration is the sample's with the test's own ports, cgroups and runtime.
func configuration(t *testing.T, i *instance.Instance, c *containerd.Containerd, logs string) (file string, fields map[string]any, readOnly int) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/compose/kubelet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	fields["port"], fields["readOnlyPort"], fields["healthzPort"] = ports[0], ports[1], ports[2]
	fields["cgroupRoot"], fields["containerRuntimeEndpoint"], fields["podLogsDir"] = i.CgroupRoot(), c.Endpoint(), logs
	file = i.Path("kubelet.yaml")
	writeInPlace(t, file, fields)
	return file, fields, ports[1]
}

// writeInPlace keeps the file that the containers see.
func writeInPlace(t *testing.T, file string, fields map[string]any) {
	t.Helper()
	out, err := yaml.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

// healthyAt waits until the node says on a port that it is healthy.
func healthyAt(t *testing.T, port int, within time.Duration, logs func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
			err = errors.New(response.Status)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not healthy at %d: %v\n%s", port, err, logs())
		case <-tick.C:
		}
	}
}

func TestComposeRunsTheNodeAsFiveContainers(t *testing.T) {
	needDocker(t)
	i := realtest.Instance(t)
	s := stack.New(i, os.Stderr)
	defer s.Stop()
	if err := s.StartRuntime(t.Context(), containerd.Config{}); err != nil {
		t.Fatal(err)
	}
	runtime := s.Runtime
	docker := engine(t, i)
	logs, root, manifests := mkdir(t, i, "pod-logs"), mkdir(t, i, "kubelet"), mkdir(t, i, "manifests")
	config, fields, readOnly := configuration(t, i, runtime, logs)
	if err := os.WriteFile(filepath.Join(manifests, "hello.yaml"), fmt.Appendf(nil, sample, images.TestApp), 0o644); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "DOCKER_HOST="+docker, "CONTAINERD_DIR="+filepath.Dir(runtime.Socket), "CONTAINERD_ROOT="+i.Path("root"), "CONTAINERD_IMAGES="+i.Path("root", "io.containerd.snapshotter.v1.overlayfs"), "POLYLET_CONFIG="+config,
		"POLYLET_MANIFESTS="+manifests, "POLYLET_ROOT="+root, "POLYLET_LOGS="+logs, "COMPOSE_PROJECT_NAME=polylet-"+i.ID, "POLYLET_FLAGS=--config-deadline=5s")
	command := func(name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Env, c.Dir = env, "../.."
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	compose := func(args ...string) string {
		t.Helper()
		return command("docker-compose", append([]string{"-f", "deploy/compose/compose.yaml"}, args...)...)
	}
	command("make", "image")
	compose("up", "-d")
	t.Cleanup(func() {
		c := exec.Command("docker-compose", "-f", "deploy/compose/compose.yaml", "down", "-v")
		c.Env, c.Dir = env, "../.."
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("docker-compose down: %v\n%s", err, out)
		}
	})
	pod := waitReady(t, readOnly, func() string { return compose("logs", "--tail=30") })
	if pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Fatalf("status %+v", pod.Status)
	}
	response, err := http.Get("http://" + net.JoinHostPort(pod.Status.PodIP, "8080") + "/hostname")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the pod answers %s", response.Status)
	}
	for service, who := range map[string]struct{ uid, capabilities string }{
		"podsync": {"0", "20023f"}, "gateway": {"60801", ""}, "probes": {"60802", ""}, "stats": {"60803", "4"}, "nodestatus": {"60804", ""}, "handout": {"0", "b"},
	} {
		id := strings.TrimSpace(compose("ps", "-q", service))
		if id == "" {
			t.Errorf("%s has no container", service)
			continue
		}
		checkProcess(t, service, strings.TrimSpace(command("docker", "inspect", "-f", "{{.State.Pid}}", id)), who.uid, who.capabilities)
		for mount := range strings.Lines(command("docker", "inspect", "-f", `{{range .Mounts}}{{.Destination}} {{.RW}} {{.Source}}{{"\n"}}{{end}}`, id)) {
			checkSocketDir(t, service, who.uid, strings.Fields(mount))
		}
	}
	checkImageDisk(t, readOnly)
	stats := strings.TrimSpace(command("docker", "inspect", "-f", "{{.State.Pid}}", strings.TrimSpace(compose("ps", "-q", "stats"))))
	if found, err := os.ReadDir(filepath.Join("/proc", stats, "root", i.Path("root", "io.containerd.snapshotter.v1.overlayfs"), "snapshots")); err != nil || len(found) > 0 {
		t.Errorf("stats sees what is in the images: %v, %v", found, err)
	}
	startedAt := func(service string) string {
		t.Helper()
		return command("docker", "inspect", "-f", "{{.State.StartedAt}}", strings.TrimSpace(compose("ps", "-q", service)))
	}
	before := map[string]string{"podsync": startedAt("podsync"), "gateway": startedAt("gateway")}
	fields["healthzPort"] = freePorts(t, 1)[0]
	writeInPlace(t, config, fields)
	logsOf := func() string { return compose("logs", "--tail=20") }
	healthyAt(t, fields["healthzPort"].(int), 2*time.Minute, logsOf) // which is seen within a minute
	if startedAt("podsync") != before["podsync"] || startedAt("gateway") == before["gateway"] {
		t.Errorf("a change of the gateway alone starts podsync, or not the gateway\n%s", logsOf())
	}
	compose("kill", "podsync", "gateway")
	compose("up", "-d")
	if again := waitReady(t, readOnly, func() string { return compose("logs", "--tail=30") }); again.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
		t.Fatal("the pod's container did not outlive the node's containers")
	}
	compose("stop")
	if err := runtime.RemovePods(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// checkImageDisk asks for the node's statistics until they have the images' disk.
func checkImageDisk(t *testing.T, port int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		fs, err := imageDisk(ctx, port)
		if err == nil && fs != nil && fs.CapacityBytes != nil && *fs.CapacityBytes > 0 && fs.UsedBytes != nil && *fs.UsedBytes > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Errorf("the statistics have of the images' disk %+v, %v", fs, err)
			return
		case <-tick.C:
		}
	}
}

func imageDisk(ctx context.Context, port int) (*statsapi.FsStats, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/stats/summary", port), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var summary statsapi.Summary
	if err := json.NewDecoder(response.Body).Decode(&summary); err != nil {
		return nil, fmt.Errorf("%s: %w", response.Status, err)
	}
	if summary.Node.Runtime == nil {
		return nil, errors.New("no statistics of the runtime")
	}
	return summary.Node.Runtime.ImageFs, nil
}

// checkProcess looks at a container's process: whose it is and what it may.
func checkProcess(t *testing.T, service, pid, uid, capabilities string) {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		t.Errorf("%s does not run: %v", service, err)
		return
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case name == "Uid" && value != strings.Join([]string{uid, uid, uid, uid}, "\t"):
			t.Errorf("%s has the users %s, want %s", service, value, uid)
		case (name == "CapEff" || name == "CapPrm") && strings.TrimLeft(value, "0") != capabilities:
			t.Errorf("%s has %s %s, want %q", service, name, value, capabilities)
		case name == "NoNewPrivs" && value != "1":
			t.Errorf("%s may gain privileges", service)
		}
	}
}

// checkSocketDir looks at a mount (where, writable or not, of what): nobody may
// put a socket where another's is.
func checkSocketDir(t *testing.T, service, uid string, mount []string) {
	t.Helper()
	if len(mount) != 3 || !strings.HasPrefix(mount[0], "/run/polylet") {
		return
	}
	own := mount[0] == "/run/polylet/"+service+".d"
	handsOut := service == "handout" && !strings.HasSuffix(mount[0], ".d")
	if mount[1] != strconv.FormatBool(own || handsOut) {
		t.Errorf("%s may write to %s: %s", service, mount[0], mount[1])
	}
	if info, err := os.Stat(mount[2]); own && (err != nil || info.Mode().Perm() != 0o750 || strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid)) != uid) {
		t.Errorf("%s of %s: %v, %v", mount[0], service, info, err)
	}
}

func mkdir(t *testing.T, i *instance.Instance, name string) string {
	t.Helper()
	dir, err := i.Mkdir(name)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// waitReady asks the read-only port until the sample pod is Ready.
func waitReady(t *testing.T, port int, logs func() string) v1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last string
	for {
		pod, err := readyPod(ctx, port)
		if err == nil {
			return pod
		}
		last = err.Error()
		select {
		case <-ctx.Done():
			t.Fatalf("the sample pod is not Ready: %s\n%s", last, logs())
		case <-tick.C:
		}
	}
}

func readyPod(ctx context.Context, port int) (v1.Pod, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/pods", port), nil)
	if err != nil {
		return v1.Pod{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return v1.Pod{}, err
	}
	defer response.Body.Close()
	var list v1.PodList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return v1.Pod{}, fmt.Errorf("%s: %w", response.Status, err)
	}
	if len(list.Items) == 0 {
		return v1.Pod{}, errors.New("no pod yet")
	}
	pod := list.Items[0]
	for _, c := range pod.Status.Conditions {
		// A podsync that has just started knows of a static pod that it was ready,
		// and of its containers once it has looked at the runtime.
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue && len(pod.Status.ContainerStatuses) > 0 {
			return pod, nil
		}
	}
	return pod, fmt.Errorf("pod %s: %+v", pod.Name, pod.Status)
}
