package node_test

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestACommandThatTakesNoNoticeOfItsClientEndsWithIt kills clients of exec, and
// polylet's own processes between them, and looks at what runs in the container.
func TestACommandThatTakesNoNoticeOfItsClientEndsWithIt(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet leaves these commands; some of the stories kill polylet's processes")
	}
	whole := build(t, plan{})
	whole.shell("victim")
	for _, story := range []struct {
		name string
		tell func(h *house, environment []string)
	}{
		{"a shell on a terminal", leftTerminal},
		{"yes behind -i", func(h *house, e []string) { h.left(e, "yes behind", "exec", "-i", "victim", "--", "yes", "behind") }},
		{"yes without input", func(h *house, e []string) { h.left(e, "yes alone", "exec", "victim", "--", "yes", "alone") }},
		{"sleep", func(h *house, e []string) { h.left(e, "sleep 1000", "exec", "victim", "--", "sleep", "1000") }},
		{"a shell with a child", func(h *house, e []string) {
			h.left(e, "sleep 1001", "exec", "victim", "--", "sh", "-c", "sleep 1001; echo over")
		}},
		{"a command in whose place another runs", func(h *house, e []string) {
			h.left(e, "sleep 1002", "exec", "victim", "--", "sh", "-c", "exec sleep 1002")
		}},
		// After those whose text names sleep: one whose command ended before it was found is
		// not in its way.
		{"one of two that are equal", leftTwin},
		{"what ignores the hangup stays", leftDaemon},
		{"podsync is killed in between", leftAcrossPodsync},
		{"the gateway is killed", leftByGateway},
	} {
		for transport, environment := range transports() {
			t.Run(story.name+" over "+transport, func(t *testing.T) {
				h := *whole
				h.T = t
				story.tell(&h, environment)
				h.onlyIdle()
			})
		}
	}
	now, err := whole.pod("victim")
	whole.must(err)
	if cs := now.Status.ContainerStatuses[0]; cs.RestartCount != 0 || cs.State.Running == nil {
		t.Errorf("the container has ended with a client: %s", describe(now))
	}
}

// left starts a command, waits until its process is there, and kills the client.
func (h *house) left(environment []string, process string, args ...string) {
	h.Helper()
	_, _, kill := h.starts(environment, args...)
	h.runs(process, 1)
	kill()
}

// inVictim are the processes in the container: number and arguments.
func (h *house) inVictim() map[int]string {
	h.Helper()
	got := h.kubectlRan(nil, nil, "exec", "victim", "--", "ps", "-o", "pid,args")
	list := map[int]string{}
	for _, line := range strings.Split(got.stdout, "\n") {
		number, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(number); err == nil {
			list[pid] = args
		}
	}
	return list
}

// runs waits until so many processes with these arguments are in the container.
func (h *house) runs(args string, n int) (pids []int) {
	h.Helper()
	h.quietly(time.Minute, fmt.Sprintf("%q runs %d times", args, n), func() error {
		all := h.inVictim()
		pids = nil
		for pid, a := range all {
			if a == args {
				pids = append(pids, pid)
			}
		}
		return boolError(len(pids) == n && len(all) > 0, "there are %v", all)
	})
	return pids
}

// onlyIdle waits until nothing but the container's own processes is left.
func (h *house) onlyIdle() {
	h.Helper()
	h.eventually(2*time.Minute, "nothing is left in the container", func() error {
		all := h.inVictim()
		if len(all) == 0 { // podsync is just back, say: its own process is always there
			return errors.New("its processes could not be listed")
		}
		for pid, args := range all {
			if args == "sleep 3600" || args == "ps -o pid,args" || strings.HasPrefix(args, "sh -c echo waiting") {
				delete(all, pid)
			}
		}
		return boolError(len(all) == 0, "there are %v", all)
	})
}

func leftTerminal(h *house, environment []string) {
	s := h.inTerminal(environment, "exec", "-it", "victim", "--", "sh")
	s.types("sleep 1003 & echo started $((40+2))")
	s.sees(`started 42\r\n`)
	h.runs("sh", 1)
	h.runs("sleep 1003", 1)
	h.must(s.cmd.Process.Kill())
	s.ends()
}

// leftTwin: of two that cannot be told apart but by their time, the right one
// ends.
func leftTwin(h *house, environment []string) {
	_, _, killFirst := h.starts(environment, "exec", "victim", "--", "sleep", "1004")
	first := h.runs("sleep 1004", 1)[0]
	_, _, killSecond := h.starts(environment, "exec", "victim", "--", "sleep", "1004")
	both := h.runs("sleep 1004", 2)
	killFirst()
	if rest := h.runs("sleep 1004", 1); rest[0] == first || rest[0] != both[0] && rest[0] != both[1] {
		h.Errorf("of %v, %d was left by its client, and %v goes on", both, first, rest)
	}
	killSecond()
	h.runs("sleep 1004", 0)
	// The second may be the one that is left.
	_, _, killFirst = h.starts(environment, "exec", "victim", "--", "sleep", "1005")
	first = h.runs("sleep 1005", 1)[0]
	_, _, killSecond = h.starts(environment, "exec", "victim", "--", "sleep", "1005")
	h.runs("sleep 1005", 2)
	killSecond()
	if rest := h.runs("sleep 1005", 1); rest[0] != first {
		h.Errorf("%d, whose client is there, has ended; %v goes on", first, rest)
	}
	killFirst()
}

// leftDaemon: what was told to stay stays, whether its shell ended or was left.
func leftDaemon(h *house, environment []string) {
	got := h.kubectlRan(nil, environment, "exec", "victim", "--", "sh", "-c", "(trap '' HUP; exec sleep 1006) >/dev/null 2>&1 & exit 0")
	if got.code != 0 {
		h.Errorf("a command that starts a daemon: %+v", got)
	}
	h.runs("sleep 1006", 1)
	h.left(environment, "sleep 1008", "exec", "victim", "--", "sh", "-c",
		"(trap '' HUP; exec sleep 1007) >/dev/null 2>&1 & sleep 1008; echo over")
	h.runs("sleep 1008", 0)
	daemons := append(h.runs("sleep 1006", 1), h.runs("sleep 1007", 1)...)
	got = h.kubectlRan(nil, nil, "exec", "victim", "--", "kill", strconv.Itoa(daemons[0]), strconv.Itoa(daemons[1]))
	if got.code != 0 {
		h.Errorf("ending the daemons: %+v", got)
	}
}

func leftAcrossPodsync(h *house, environment []string) {
	out, in, kill := h.starts(environment, "exec", "-i", "victim", "--", "sh", "-c", "cat; sleep 1009")
	h.runs("sh -c cat; sleep 1009", 1)
	h.killService("podsync")
	h.eventually(time.Minute, "podsync is there again", func() error { return h.node.Healthy(h.ctx) })
	_, err := io.WriteString(in, "still here\n")
	h.must(err)
	h.eventually(time.Minute, "the session goes on", func() error {
		return boolError(out.String() == "still here\n", "%q", out.String())
	})
	kill()
	h.runs("sh -c cat; sleep 1009", 0)
	// A client may leave while podsync is away, too.
	_, _, kill = h.starts(environment, "exec", "victim", "--", "sleep", "1010")
	h.runs("sleep 1010", 1)
	h.node.Processes["podsync"].Kill()
	kill()
	h.must(h.node.Processes["podsync"].Launch())
	h.eventually(time.Minute, "podsync is there again", func() error { return h.node.Healthy(h.ctx) })
}

func leftByGateway(h *house, environment []string) {
	_, _, kill := h.starts(environment, "exec", "victim", "--", "sleep", "1011")
	defer kill()
	_, _, killShell := h.starts(environment, "exec", "-i", "victim", "--", "sh", "-c", "while sleep 1; do :; done")
	defer killShell()
	h.runs("sleep 1011", 1)
	h.runs("sh -c while sleep 1; do :; done", 1)
	h.killService("gateway")
	h.eventually(time.Minute, "the gateway is there again", func() error { return h.node.Healthy(h.ctx) })
	h.runs("sleep 1011", 0)
}
