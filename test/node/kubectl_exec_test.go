package node_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
)

func kubectlExec(h *house) {
	h.shell("shell")
	for name, environment := range transports() {
		got := h.kubectlRan(nil, environment, "exec", "shell", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
		if got.stdout != "out\n" || got.stderr != "err\ncommand terminated with exit code 7\n" || got.code != 7 {
			h.Errorf("%s: %+v", name, got)
		}
		got = h.kubectlRan(strings.NewReader("three\nshort\nlines\n"), environment, "exec", "-i", "shell", "-c", "app", "--", "wc", "-l")
		if strings.TrimSpace(got.stdout) != "3" || got.stderr != "" || got.code != 0 {
			h.Errorf("%s: with input: %+v", name, got)
		}
		// Input that the command does not read does not keep it.
		got = h.kubectlRan(strings.NewReader("nobody reads this\n"), environment, "exec", "-i", "shell", "--", "true")
		if got != (result{}) {
			h.Errorf("%s: with input that is not read: %+v", name, got)
		}
		got = h.kubectlRan(nil, environment, "exec", "shell", "--", "/nosuch")
		if got.code == 0 || !strings.Contains(got.stderr, "/nosuch") {
			h.Errorf("%s: a program that does not exist: %+v", name, got)
		}
	}
	h.fails(1, "container nosuch", "exec", "shell", "-c", "nosuch", "--", "true")
	h.fails(1, `pods "nosuch" not found`, "exec", "nosuch", "--", "true")
	// The image's variables and the arguments arrive as they are.
	h.prints("a b|$HOME|\n", "exec", "shell", "--", "sh", "-c", `printf '%s|' "$@"; echo`, "-", "a b", "$HOME")
	h.delete("shell")
}

// largeLines is how many numbers the long output has: 38 MB.
const largeLines = 5_000_000

func kubectlExecLarge(h *house) {
	h.shell("large")
	input := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{1}).Read(input)
	want := sha256.New()
	for i := range largeLines {
		fmt.Fprintln(want, i+1)
	}
	for name, environment := range transports() {
		got := h.kubectlRan(bytes.NewReader(input), environment, "exec", "-i", "large", "--", "sha256sum")
		if got.code != 0 || !strings.HasPrefix(got.stdout, fmt.Sprintf("%x ", sha256.Sum256(input))) {
			h.Errorf("%s: %d bytes in: %+v", name, len(input), got)
		}
		cmd := h.kubectlCommand("exec", "large", "--", "seq", "1", fmt.Sprint(largeLines))
		sum := sha256.New()
		cmd.Stdout, cmd.Env = sum, append(cmd.Environ(), environment...)
		if err := cmd.Run(); err != nil || !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
			h.Errorf("%s: %d lines out: %v, hash %x, want %x", name, largeLines, err, sum.Sum(nil), want.Sum(nil))
		}
	}
	h.delete("large")
}

// screen is a terminal that kubectl runs in.
type screen struct {
	h    *house
	cmd  *exec.Cmd
	side interface {
		io.ReadWriteCloser
	}
	resize func(*pty.Winsize) error

	mu   sync.Mutex
	text strings.Builder
	done chan struct{}
}

// inTerminal starts kubectl in a terminal of 120 columns and 40 rows.
func (h *house) inTerminal(environment []string, args ...string) *screen {
	h.Helper()
	cmd := h.kubectlCommand(args...)
	cmd.Env = append(cmd.Environ(), environment...)
	side, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
	h.must(err)
	s := &screen{h: h, cmd: cmd, side: side, resize: func(w *pty.Winsize) error { return pty.Setsize(side, w) }, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		buf := make([]byte, 4096)
		for {
			n, err := side.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// sees waits until the screen shows it.
func (s *screen) sees(pattern string) {
	s.h.Helper()
	re := regexp.MustCompile(pattern)
	s.h.eventually(time.Minute, fmt.Sprintf("the terminal shows %q", pattern), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return boolError(re.MatchString(s.text.String()), "it shows %q", s.text.String())
	})
}

// types sends keys, and after them a line end.
func (s *screen) types(line string) {
	s.h.Helper()
	_, err := io.WriteString(s.side, line+"\n")
	s.h.must(err)
}

// ends waits for kubectl and returns its exit code.
func (s *screen) ends() int {
	s.h.Helper()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.h.Fatal(err)
	}
	s.side.Close() // kubectl's own end is closed
	<-s.done
	return s.cmd.ProcessState.ExitCode()
}

func kubectlTerminal(h *house) {
	h.shell("terminal")
	for name, environment := range transports() {
		s := h.inTerminal(environment, "exec", "-it", "terminal", "--", "sh")
		s.sees(`# `)
		// What is typed is echoed: the answers are what no typed line says.
		// The size comes a little after the terminal.
		s.types("until stty size | grep -q '40 120'; do sleep 0.1; done; tty; echo size $(stty size)")
		s.sees(`/dev/pts/\d+\r\n(.*\n)*size 40 120\r\n`)
		h.must(s.resize(&pty.Winsize{Rows: 24, Cols: 100}))
		s.types("until stty size | grep '24 100'; do sleep 0.1; done")
		s.sees(`\n24 100\r\n`)
		// Ctrl-C is for what runs in the container, not for kubectl.
		s.types("sleep 3601; echo interrupted $((40+2))")
		h.eventually(time.Minute, "the command runs", func() error {
			_, err := h.kubectl("exec", "terminal", "--", "sh", "-c", "ps -o args | grep -q '^sleep 3601$'")
			return err
		})
		s.types("\x03")
		s.types("echo still $((40+3))")
		s.sees(`still 43\r\n`)
		s.types("exit 5")
		if code := s.ends(); code != 5 {
			h.Errorf("%s: kubectl ends with %d, want 5", name, code)
		}
	}
	h.delete("terminal")
}

func kubectlAttach(h *house) {
	for name, environment := range transports() {
		pod := "reader-" + strings.ToLower(name)
		// The runtime may lose what a container says at the moment of its end, with
		// every agent: seen with the kubelet, too.
		p := shellPod(pod, `echo ready; while read line; do echo "got $line"; test "$line" = end && sleep 2 && exit 6; done; echo no more`)
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Stdin = true
		h.create(p)
		h.waitReady(pod, time.Minute)
		cmd := h.kubectlCommand("attach", "-i", pod)
		var out lockedBuffer
		cmd.Stdout, cmd.Env = &out, append(cmd.Environ(), environment...)
		w, err := cmd.StdinPipe()
		h.must(err)
		h.must(cmd.Start())
		fmt.Fprintln(w, "one")
		h.eventually(time.Minute, name+": the first line is answered", func() error {
			return boolError(strings.Contains(out.String(), "got one\n"), "%q", out.String())
		})
		fmt.Fprintln(w, "end")
		h.eventually(time.Minute, name+": the last line is answered", func() error {
			return boolError(strings.Contains(out.String(), "got end\n"), "%q", out.String())
		})
		w.Close()
		if err := cmd.Wait(); err != nil {
			h.Errorf("%s: kubectl attach: %v", name, err)
		}
		h.eventually(time.Minute, name+": the container has ended by what was said", func() error {
			p, err := h.pod(pod)
			if err != nil {
				return err
			}
			end := p.Status.ContainerStatuses[0].State.Terminated
			return boolError(end != nil && end.ExitCode == 6, "%s", describe(p))
		})
		h.prints("ready\ngot one\ngot end\n", "logs", pod)
		h.delete(pod)
	}
}

// kubectlRun's container goes on after its last word: the runtime may lose what one
// says at the moment of its end.
func kubectlRun(h *house) {
	got := h.kubectlRan(strings.NewReader("from outside\n"), nil, "run", "once", "-i", "--rm", "--quiet", "--restart=Never",
		"--image=docker.io/library/busybox:1.36", "--pod-running-timeout=2m", "--", "sh", "-c", "sed 's/^/came /'; sleep 2")
	if got.code != 0 || got.stdout != "came from outside\n" {
		h.Errorf("%+v", got)
	}
	got = h.kubectlRan(strings.NewReader(""), nil, "run", "twice", "-i", "--rm", "--quiet", "--restart=Never",
		"--image=docker.io/library/busybox:1.36", "--pod-running-timeout=2m", "--", "sh", "-c", "cat; exit 9")
	if got.code != 9 {
		h.Errorf("a pod that ends with 9: %+v", got)
	}
	h.waitGone("once", time.Minute)
	h.waitGone("twice", time.Minute)
}

// lockedBuffer is a bytes.Buffer that one goroutine fills and others look at.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A link that carries little keeps megabytes of an output waiting on their way
// when the command has ended long since, and clients ping once in 5 s.
const (
	slowBytes = 16_000_000
	slowRate  = 2_600_000 // bytes a second
)

func kubectlExecSlowly(h *house) {
	if onKubelet() {
		h.Skip("the kubelet loses the end of most such outputs, and tells the client that all is well")
	}
	h.shell("slow")
	var group sync.WaitGroup
	for name, environment := range transports() {
		group.Go(func() {
			n, err := h.readsSlowly(environment, "exec", "slow", "--", "head", "-c", strconv.Itoa(slowBytes), "/dev/zero")
			if n != slowBytes || err != nil {
				h.Errorf("over %s: %d bytes of %d, %v", name, n, slowBytes, err)
			}
		})
	}
	group.Wait()
	h.delete("slow")
}

// readsSlowly runs kubectl behind a slow link and counts what it prints.
func (h *house) readsSlowly(environment []string, args ...string) (n int, err error) {
	cmd := h.kubectlCommand(args...)
	cmd.Env = append(cmd.Environ(), environment...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	buffer := make([]byte, 64<<10)
	for err == nil {
		var got int
		got, err = out.Read(buffer)
		n += got
		time.Sleep(time.Duration(got) * time.Second / slowRate) // the link's time
	}
	if err != io.EOF {
		return n, err
	}
	return n, cmd.Wait()
}
