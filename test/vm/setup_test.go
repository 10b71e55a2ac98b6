// Package vm is run inside a virtual machine that systemd boots with cgroup v2
// (`make vm`): polylet as its units start it, on a containerd that leaves
// cgroups to systemd. With `make vm-kubeadm` it is kubeadm that has them started.
// It must never run on a machine that anybody needs.
package vm

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/registry"
)

const (
	payload   = "/polylet"
	manifests = "/etc/kubernetes/manifests"
	readOnly  = "http://127.0.0.1:10255"
	healthz   = "http://127.0.0.1:10248/healthz"
	secure    = "https://127.0.0.1:10250"
	// timeout is long because everything is emulated; see worked.
	timeout = 6 * time.Minute
)

// dialVariable makes of this program one that connects to a socket, for tests
// that run it as somebody else.
const dialVariable = "POLYLET_VM_DIAL"

func TestMain(m *testing.M) {
	if path := os.Getenv(dialVariable); path != "" {
		if _, err := net.Dial("unix", path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	prepare := map[string]func() error{"standalone": setUp, "kubeadm": setUpForKubeadm, "joined": setUpJoined, "selinux": setUpSELinux, "fc": setUp}[os.Getenv("POLYLET_VM")]
	if prepare == nil {
		fmt.Println("not in the virtual machine: make vm and make vm-kubeadm run these tests")
		os.Exit(0)
	}
	go work()
	if err := prepare(); err != nil {
		fmt.Println("FAIL: set up the machine:", err)
		os.Exit(1)
	}
	code := m.Run()
	if code != 0 {
		tellWhy()
	}
	os.Exit(code)
}

// setUp starts containerd with images, and installs polylet as
// deploy/systemd/README.md says.
func setUp() error {
	if err := serveImages(); err != nil {
		return err
	}
	if err := writeAll(map[string]string{
		"/etc/containerd/config.toml":       containerdConfig(true, images.Pause),
		"/etc/cni/net.d/10-bridge.conflist": network,
		"/var/lib/kubelet/config.yaml":      configuration("systemd"),
		"/etc/default/kubelet":              "KUBELET_EXTRA_ARGS=--node-ip=10.0.2.15 --config-deadline=45s\n",
		manifests + "/.made":                "",
		dropIn("podsync"):                   standalone,
		dropIn("stats"):                     standalone,
		dropIn("nodestatus"):                standalone,
		dropIn("handout"):                   standalone,
	}); err != nil {
		return err
	}
	if err := run("systemctl", "start", "containerd.service"); err != nil {
		return err
	}
	return install()
}

// serveImages serves the payload's images to the runtime.
func serveImages() error {
	r, err := registry.Open(context.Background(), filepath.Join(payload, "images"))
	if err != nil {
		return err
	}
	return r.WriteHosts("/etc/containerd/certs.d")
}

const standalone = "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=\"\n"

// strict ends a process with SIGSYS at a system call that its unit's filter has
// not, where the unit itself gives an error that a program may pass over in
// silence. longWatchdog is for an emulated processor that gets a tenth of a real one.
const (
	strict       = "[Service]\nSystemCallErrorNumber=kill\n"
	longWatchdog = "WatchdogSec=30min\n"
)

func dropIn(service string) string {
	return "/etc/systemd/system/polylet-" + service + ".service.d/standalone.conf"
}

// install is the README's list of commands.
func install() error {
	if err := installFiles(); err != nil {
		return err
	}
	enable := []string{"systemctl", "enable", "--now", "polylet-handout.service"}
	for _, s := range services {
		enable = append(enable, "polylet-"+s+".socket", "polylet-"+s+".service")
	}
	if err := runAll([][]string{{"systemctl", "daemon-reload"}, enable}); err != nil {
		said, journalErr := exec.Command("journalctl", "--boot", "--no-pager", "--lines=60", "--output=cat", "--unit=polylet-*").CombinedOutput()
		return errors.Join(err, fmt.Errorf("the journal of polylet's units: %s", said), journalErr)
	}
	return nil
}

// installFiles installs the program and the units, and makes the users.
func installFiles() error {
	for _, s := range append([]string{"handout"}, services...) {
		text := strict
		if s != "handout" { // which has no watchdog
			text += longWatchdog
		}
		if err := write("/etc/systemd/system/polylet-"+s+".service.d/machine.conf", text); err != nil {
			return err
		}
	}
	units, err := filepath.Glob(payload + "/systemd/*")
	if err != nil {
		return err
	}
	for _, from := range units {
		name := filepath.Base(from)
		to := "/usr/lib/systemd/system/" + name
		switch {
		case strings.HasSuffix(name, ".sysusers.conf"):
			to = "/usr/lib/sysusers.d/polylet.conf"
		case strings.HasSuffix(name, ".tmpfiles.conf"):
			to = "/usr/lib/tmpfiles.d/polylet.conf"
		case strings.HasSuffix(name, ".dbus.conf"):
			to = "/usr/share/dbus-1/system.d/polylet.conf"
		case name == "kubelet.service":
			to = "/etc/systemd/system/" + name
		case name == "kubelet.service.d":
			from, to = from+"/20-polylet.conf", "/etc/systemd/system/"+name+"/20-polylet.conf"
		case name == "README.md":
			continue
		}
		if err := run("install", "-D", "-m", "0644", from, to); err != nil {
			return err
		}
	}
	return runAll([][]string{
		{"install", "-m", "0755", payload + "/bin/polylet", "/usr/bin/polylet"},
		{"systemd-sysusers"},
		{"systemd-tmpfiles", "--create"},
	})
}

// tellWhy prints what a reader of a failed run needs; the machine is gone then.
func tellWhy() {
	for _, command := range [][]string{
		{"systemctl", "--no-pager", "list-units", "--failed"},
		{"systemctl", "--no-pager", "status", "polylet-*"},
		{"/usr/bin/polylet", "pods"},
		{"journalctl", "--no-pager", "-b", "-n", "150", "-u", "polylet-*"},
		{"journalctl", "--no-pager", "-b", "-n", "60", "-u", "containerd"},
		{"systemd-cgls", "--no-pager"},
	} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		fmt.Printf("\n$ %s (%v)\n%s", strings.Join(command, " "), err, out)
	}
}

func configuration(driver string) string {
	return `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: ` + driver + `
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: ` + manifests + `
readOnlyPort: 10255
podPidsLimit: 321
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
`
}

func containerdConfig(systemd bool, pause string) string {
	return fmt.Sprintf(`version = 3
[plugins.'io.containerd.cri.v1.images']
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %q
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "/etc/containerd/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = %t
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/etc/cni/net.d"
`, pause, systemd)
}

const network = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.210.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

var services = []string{"podsync", "probes", "stats", "nodestatus", "gateway"}

// Helpers of the tests.

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func runAll(commands [][]string) error {
	for _, command := range commands {
		if err := run(command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// writeAll writes texts by the path of their file.
func writeAll(texts map[string]string) error {
	for path, text := range texts {
		if err := write(path, text); err != nil {
			return err
		}
	}
	return nil
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// property is one of systemctl show.
func property(t *testing.T, unit, name string) string {
	t.Helper()
	out, err := exec.Command("systemctl", "show", "--value", "-p", name, unit).Output()
	if err != nil {
		t.Fatalf("systemctl show %s: %v", unit, err)
	}
	return strings.TrimSpace(string(out))
}

// killPodsync ends it as the kernel does when there is no memory left, and says which process it
// was.
func killPodsync(t *testing.T) (killed string) {
	t.Helper()
	killed = property(t, "polylet-podsync.service", "MainPID")
	pid, err := strconv.Atoi(killed)
	if err = errors.Join(err, unix.Kill(pid, unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	return killed
}

// eventually asks until there is no error, or the machine's timeout is at its
// end. Every minute it says what is still missing.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	began, deadline, said := time.Now(), worked()+timeout, time.Now()
	for {
		err := ask()
		if err == nil {
			t.Logf("%s: after %s", what, time.Since(began).Round(time.Second))
			return
		}
		if worked() > deadline {
			t.Fatalf("%s: not within %s of work, which took %s: %v", what, timeout, time.Since(began), err)
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			t.Logf("%s: not after %s: %.1500s", what, time.Since(began).Round(time.Second), err)
		}
		time.Sleep(time.Second) // between two questions to real processes
	}
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	res, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", url, res.Status, body)
	}
	return body, err
}

// pod is the pod with this name of the node's own list.
func pod(name string) (*corev1.Pod, error) {
	body, err := get(readOnly + "/pods")
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, name) {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("no pod %s", name)
}

// ready is the pod once it is Ready.
func ready(t *testing.T, name string) (got *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+name+" Ready", func() (err error) {
		if got, err = pod(name); err != nil {
			return err
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		status, _ := json.Marshal(got.Status)
		return fmt.Errorf("status is %s", status)
	})
	return got
}

// apply writes the manifest; remove takes it away and waits for the pod to go.
func apply(t *testing.T, p corev1.Pod) {
	t.Helper()
	p.APIVersion, p.Kind = "v1", "Pod"
	data, err := yaml.Marshal(p)
	if err == nil {
		err = os.WriteFile(filepath.Join(manifests, p.Name+".yaml"), data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(manifests, name+".yaml")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	eventually(t, "pod "+name+" gone", func() error {
		if _, err := pod(name); err == nil {
			return errors.New("it is still there")
		} else if !strings.HasPrefix(err.Error(), "no pod") {
			return err
		}
		return nil
	})
}
