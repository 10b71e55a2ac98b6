package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/test/harness/images"
)

// TestKubectlDoesAllThatItDoesWithAKubelet runs the real kubectl through the
// real apiserver and looks at what it prints and how it ends.
func TestKubectlDoesAllThatItDoesWithAKubelet(t *testing.T) {
	whole := build(t, plan{controllers: true})
	whole.play([]story{
		{"logs chooses the container, the life, the lines and the bytes", kubectlLogs},
		{"logs -f ends with the container and has all of it", kubectlFollows},
		{"exec hands the output, the errors and the exit code through", kubectlExec},
		{"exec carries many megabytes both ways without a change", kubectlExecLarge},
		{"exec brings all of its output to a client that reads slowly", kubectlExecSlowly},
		{"exec -it is a terminal that has a size and follows it", kubectlTerminal},
		{"attach reaches the input and the output of what runs", kubectlAttach},
		{"run -i gives a pod its input and shows its output", kubectlRun},
		{"cp copies files and directories both ways", kubectlCopy},
		{"port-forward carries many connections at once", kubectlPortForward},
		{"port-forward brings the answer to a client that has said all", kubectlPortForwardHalfClosed},
		{"debug adds a container that sees the target's processes", kubectlDebugPod},
		{"debug node/ shows the host", kubectlDebugNode},
		{"a client that is killed leaves nothing in the container", kubectlKilled},
		{"drain empties the node with grace and uncordon fills it again", kubectlDrain},
	})
}

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// kubectlRan runs kubectl to its end, with input when it is not nil and with
// the additional variables in its environment.
func (h *house) kubectlRan(input io.Reader, environment []string, args ...string) result {
	h.Helper()
	cmd := h.kubectlCommand(args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &out, &errOut
	cmd.Env = append(cmd.Environ(), environment...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// prints runs kubectl and wants exactly this on its standard output, and success.
func (h *house) prints(want string, args ...string) {
	h.Helper()
	if got := h.kubectlRan(nil, nil, args...); got.code != 0 || got.stdout != want {
		h.Errorf("kubectl %s prints %q and ends with %d, want %q and 0; stderr is %q", strings.Join(args, " "), got.stdout, got.code, want, got.stderr)
	}
}

// fails runs kubectl and wants this exit code and this in its standard error.
func (h *house) fails(code int, message string, args ...string) {
	h.Helper()
	if got := h.kubectlRan(nil, nil, args...); got.code != code || !strings.Contains(got.stderr, message) {
		h.Errorf("kubectl %s ends with %d and says %q, want %d and %q", strings.Join(args, " "), got.code, got.stderr, code, message)
	}
}

// answers runs kubectl with an input that stays open until the output has this,
// as a person's does, and wants it to end by itself, with success.
func (h *house) answers(input, want string, environment []string, args ...string) {
	h.Helper()
	cmd := h.kubectlCommand(args...)
	var out, errOut lockedBuffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errOut, append(cmd.Environ(), environment...)
	in, err := cmd.StdinPipe()
	h.must(err)
	h.must(cmd.Start())
	_, err = io.WriteString(in, input)
	h.must(err)
	h.quietly(2*time.Minute, "kubectl "+strings.Join(args, " ")+" prints what it shall", func() error {
		return boolError(strings.Contains(out.String(), want), "it prints %q and says %q, want %q", out.String(), errOut.String(), want)
	})
	h.must(in.Close())
	if err := cmd.Wait(); err != nil {
		h.Errorf("kubectl %s: %v; it says %q", strings.Join(args, " "), err, errOut.String())
	}
}

// transports are the environments in which kubectl speaks WebSocket, and SPDY.
func transports() map[string][]string {
	return map[string][]string{
		"WebSocket": nil,
		"SPDY":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
	}
}

// shellPod is a pod whose one container runs a script of busybox's shell.
func shellPod(name, script string) *corev1.Pod {
	p := app(name)
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(1))
	p.Spec.Containers[0].Image = images.BusyBox
	p.Spec.Containers[0].Command = []string{"sh", "-c", script}
	return p
}

// quiet is the script of a container that waits for what is done to it; idle
// says so first.
const (
	quiet = "trap 'exit 0' TERM; while true; do sleep 3600 & wait $!; done"
	idle  = "echo waiting; " + quiet
)

// shell makes an idle pod and waits for it.
func (h *house) shell(name string) *corev1.Pod {
	h.Helper()
	h.create(shellPod(name, idle))
	return h.waitReady(name, time.Minute)
}

// numbers are the lines from 1 to n.
func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}
