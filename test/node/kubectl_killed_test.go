package node_test

import (
	"io"
	"slices"
	"strings"
	"time"
)

// kubectlKilled kills kubectl in the middle of sessions and looks for what it
// has left in the container. exec_left_test.go has the commands that take no
// notice of their client.
func kubectlKilled(h *house) {
	p := webApp("victim")
	shell := shellPod("", idle).Spec.Containers[0]
	shell.Name = "shell"
	listener := shellPod("", `while read line; do echo "got $line"; done; sleep 3600`).Spec.Containers[0]
	listener.Name, listener.Stdin = "listener", true
	p.Spec.Containers = append(p.Spec.Containers, shell, listener)
	h.create(p)
	h.waitReady("victim", time.Minute)
	for name, environment := range transports() {
		h.killExec(name, environment)
		h.killAttach(name, environment)
		bases, kill := h.forwards(environment, "pod/victim", ":8080")
		if got := h.get(bases[0] + "/hostname"); got != "victim\n" {
			h.Errorf("%s: through port-forward: %q", name, got)
		}
		kill()
	}
	for _, container := range []string{"shell", "listener"} {
		h.eventually(time.Minute, "nothing is left in "+container, func() error {
			got := h.kubectlRan(nil, nil, "exec", "victim", "-c", container, "--", "ps", "-o", "comm")
			var rest []string
			for _, command := range strings.Fields(got.stdout) {
				if !slices.Contains([]string{"COMMAND", "sh", "sleep", "ps"}, command) {
					rest = append(rest, command)
				}
			}
			return boolError(got.code == 0 && len(rest) == 0, "%v; %+v", rest, got)
		})
	}
	now, err := h.pod("victim")
	h.must(err)
	for _, cs := range now.Status.ContainerStatuses {
		if cs.RestartCount != 0 || cs.State.Running == nil {
			h.Errorf("a container has ended with a client: %s", describe(now))
		}
	}
	h.delete("victim")
}

// killExec kills an exec whose command waits for more input.
func (h *house) killExec(name string, environment []string) {
	h.Helper()
	out, in, kill := h.starts(environment, "exec", "-i", "victim", "-c", "shell", "--", "cat")
	_, err := io.WriteString(in, "some input")
	h.must(err)
	h.eventually(time.Minute, name+": exec answers", func() error {
		return boolError(out.String() == "some input", "%q", out.String())
	})
	kill()
	h.eventually(time.Minute, name+": the command is gone with its client", func() error {
		got := h.kubectlRan(nil, nil, "exec", "victim", "-c", "shell", "--", "ps", "-o", "args")
		return boolError(got.code == 0 && !strings.Contains(got.stdout, "\ncat\n"), "its processes are %+v", got)
	})
}

// killAttach kills an attach: the container goes on and is there for the next.
func (h *house) killAttach(name string, environment []string) {
	h.Helper()
	for range 2 {
		out, in, kill := h.starts(environment, "attach", "-i", "victim", "-c", "listener")
		_, err := io.WriteString(in, "hello\n")
		h.must(err)
		h.eventually(time.Minute, name+": attach answers", func() error {
			return boolError(strings.Contains(out.String(), "got hello\n"), "%q", out.String())
		})
		kill()
	}
}

// starts runs kubectl until it is killed; its input stays open till then.
func (h *house) starts(environment []string, args ...string) (out *lockedBuffer, in io.Writer, kill func()) {
	h.Helper()
	cmd := h.kubectlCommand(args...)
	out = new(lockedBuffer)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, new(lockedBuffer), append(cmd.Environ(), environment...)
	in, err := cmd.StdinPipe()
	h.must(err)
	h.must(cmd.Start())
	return out, in, func() {
		cmd.Process.Kill() // it waits for its input
		cmd.Wait()         // killed
	}
}
