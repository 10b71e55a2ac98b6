package node_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// tree writes files of several sizes and depths below dir.
func (h *house) tree(dir string) {
	h.Helper()
	content := rand.NewChaCha8([32]byte{2})
	for name, size := range map[string]int{"empty": 0, "small.txt": 100, "deep/er/block": 4096, "deep/large.bin": 8 << 20, "with blank": 10} {
		file := filepath.Join(dir, name)
		h.must(os.MkdirAll(filepath.Dir(file), 0o755))
		data := make([]byte, size)
		content.Read(data)
		h.must(os.WriteFile(file, data, 0o640))
	}
	h.must(os.Chmod(filepath.Join(dir, "small.txt"), 0o755))
}

// picture is every file below dir with its hash.
func (h *house) picture(dir string) string {
	h.Helper()
	var b strings.Builder
	h.must(filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s %x\n", rel, sha256.Sum256(data))
		return err
	}))
	return b.String()
}

func kubectlCopy(h *house) {
	h.shell("box")
	source := h.TempDir()
	h.tree(source)
	for name, environment := range transports() {
		there := "/tmp/" + name
		for _, args := range [][]string{
			{"cp", source, "box:" + there},
			{"cp", "default/box:" + there, filepath.Join(h.inst.Path("copies"), name)},
			{"cp", "-c", "app", filepath.Join(source, "small.txt"), "default/box:" + there + ".txt"},
			{"cp", "-c", "app", "box:" + there + ".txt", filepath.Join(h.inst.Path("copies"), name+".txt")},
		} {
			if got := h.kubectlRan(nil, environment, args...); got.code != 0 || got.stdout != "" && !strings.Contains(got.stdout, "tar: ") {
				h.Errorf("%s: kubectl %s: %+v", name, strings.Join(args, " "), got)
			}
		}
		if got, want := h.picture(filepath.Join(h.inst.Path("copies"), name)), h.picture(source); got != want {
			h.Errorf("%s: what came back is\n%swant\n%s", name, got, want)
		}
		back, err := os.ReadFile(filepath.Join(h.inst.Path("copies"), name+".txt"))
		h.must(err)
		sent, err := os.ReadFile(filepath.Join(source, "small.txt"))
		h.must(err)
		if !bytes.Equal(back, sent) {
			h.Errorf("%s: the single file came back as %q", name, back)
		}
		h.prints("5\n640\n755\n", "exec", "box", "--", "sh", "-c", "cd "+there+" && find . -type f | wc -l; stat -c %a empty small.txt")
	}
	// kubectl's words and exit code depend on which of its own two ends is first.
	missing := filepath.Join(h.inst.Path("copies"), "nosuch")
	h.kubectlRan(nil, nil, "cp", "box:/nosuch", missing)
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		h.Errorf("a file that does not exist was copied: %v", err)
	}
	h.delete("box")
}

// forwards starts kubectl port-forward and returns what each port became on this
// machine, in the order given, and what ends it.
func (h *house) forwards(environment []string, target string, ports ...string) (bases []string, stop func()) {
	h.Helper()
	cmd := h.kubectlCommand(append([]string{"port-forward", target}, ports...)...)
	cmd.Env = append(cmd.Environ(), environment...)
	var errOut lockedBuffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	h.must(err)
	h.must(cmd.Start())
	lines := bufio.NewScanner(out)
	local := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+)`)
	for len(bases) < len(ports) && lines.Scan() {
		if m := local.FindStringSubmatch(lines.Text()); m != nil {
			bases = append(bases, "http://"+m[1])
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() { // it says each connection
		}
	}()
	stop = func() {
		cmd.Process.Kill() // it forwards for ever
		<-drained
		cmd.Wait() // killed
	}
	if len(bases) < len(ports) {
		stop()
		h.Fatalf("kubectl port-forward %s %v forwards %v; stderr is %q", target, ports, bases, errOut.String())
	}
	return bases, stop
}

// connections are made at once through one port-forward.
const connections = 16

func kubectlPortForward(h *house) {
	web := webApp("forwarded")
	second := *web.Spec.Containers[0].DeepCopy()
	second.Name, second.Args, second.Ports = "second", []string{"http", "port=8081"}, nil
	second.ReadinessProbe.HTTPGet.Port = intstr.FromInt32(8081)
	web.Spec.Containers = append(web.Spec.Containers, second)
	h.create(web)
	h.waitReady("forwarded", time.Minute)
	for name, environment := range transports() {
		bases, stop := h.forwards(environment, "pod/forwarded", ":8080", ":8081")
		var group sync.WaitGroup
		for i := range connections {
			group.Go(func() {
				if err := h.echoes(bases[i%2], i); err != nil {
					h.Errorf("%s: connection %d: %v", name, i, err)
				}
			})
		}
		group.Wait()
		for _, base := range bases {
			if got := h.get(base + "/hostname"); got != "forwarded\n" {
				h.Errorf("%s: %s/hostname is %q", name, base, got)
			}
		}
		stop()
	}
	h.fails(1, `pods "nosuch" not found`, "port-forward", "nosuch", ":8080")
	h.delete("forwarded")
}

// kubectlPortForwardHalfClosed speaks to a server that answers a while after its
// client has closed its direction. containerd leaves such an answer one second.
func kubectlPortForwardHalfClosed(h *house) {
	pod := shellPod("listener", `exec nc -ll -p 9000 -e sh -c 'read line; sleep 0.3; echo "heard $line"'`)
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9000)}}, PeriodSeconds: 1,
	}
	h.create(pod)
	h.waitReady("listener", time.Minute)
	for name, environment := range transports() {
		bases, stop := h.forwards(environment, "pod/listener", ":9000")
		for i := range 4 {
			said := fmt.Sprintf("%s %d", name, i)
			if got, err := h.says(strings.TrimPrefix(bases[0], "http://"), said); err != nil || got != "heard "+said+"\n" {
				h.Errorf("%q was answered by %q, %v", said, got, err)
			}
		}
		stop()
	}
	h.delete("listener")
}

// says sends a line, closes this direction, and returns all that comes back.
func (h *house) says(address, line string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(h.ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	all, err := io.ReadAll(conn)
	return string(all), err
}

// echoes posts a megabyte on a connection of its own and wants it back.
func (h *house) echoes(base string, seed int) error {
	body := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(body)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(h.ctx, http.MethodPost, base+"/echo", bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	return boolError(bytes.Equal(got, body), "%s, %d bytes came back that are not those sent", res.Status, len(got))
}
