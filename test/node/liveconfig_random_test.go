package node_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/testkit/configgen"
	"github.com/polylet/polylet/test/harness/node"
)

// TestPodsDoNotNoticeRandomConfigurationsWhateverIsKilled writes one configuration after
// the other, those that are taken, those that cannot be and those that do not run, and
// kills polylet run and the services while they are taken. POLYLET_TEST_SEED repeats one;
// POLYLET_TEST_PODS and POLYLET_TEST_CHANGES say how many (make soak-config). The machine's
// clock does not jump meanwhile: a time namespace cannot move CLOCK_REALTIME, and the clock
// of the machine is others' as well.
func TestPodsDoNotNoticeRandomConfigurationsWhateverIsKilled(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet reads its configuration when it starts, only")
	}
	pods, changes := 10, 12
	if os.Getenv("POLYLET_LONG_TESTS") != "" {
		pods, changes = 30, 200
	}
	pods, changes = numberOf(t, "POLYLET_TEST_PODS", pods), numberOf(t, "POLYLET_TEST_CHANGES", changes)
	within := testWithin + time.Duration(max(0, changes-12))*30*time.Second
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("POLYLET_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	h := build(t, plan{supervised: true, flags: []string{"--config-deadline=4s"}, within: within})
	for n := range pods {
		h.create(webApp(fmt.Sprintf("bystander-%d", n)))
	}
	for n := range pods {
		h.waitReady(fmt.Sprintf("bystander-%d", n), 3*time.Minute)
	}
	before, err := h.containerIDs()
	h.must(err)
	guard := h.guard()
	t.Logf("the order of the changes: POLYLET_TEST_SEED=%d", seed)
	h.changeAll(configgen.New(seed), changes)
	h.eventually(time.Minute, "the node is healthy", func() error { return h.node.Healthy(h.ctx) })
	for _, complaint := range guard.stop() {
		t.Error(complaint)
	}
	after, err := h.containerIDs()
	h.must(err)
	for id, pod := range before {
		if after[id] != pod {
			t.Errorf("container %.12s of pod %s does not run any more", id, pod)
		}
	}
}

// numberOf is what the environment says, or else.
func numberOf(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: %v", variable, text, err)
	}
	return n
}

// changeAll makes the changes one after the other.
func (h *house) changeAll(g *configgen.Generator, changes int) {
	h.Helper()
	raw, err := os.ReadFile(h.node.ConfigFile)
	h.must(err)
	fields := map[string]any{}
	h.must(yaml.Unmarshal(raw, &fields))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	h.must(err)
	defer taken.Close()
	h.awaitState("the first configuration is good", func(s liveconf.State) error {
		_, err := os.Stat(filepath.Join(h.node.RootDir, "polylet/configuration/last-known-good.json"))
		return err
	})
	tried := map[string]int{}
	defer func() { h.Logf("%d changes: %v", changes, tried) }()
	for n := range changes {
		c := g.Next()
		broken := n%6 == 5
		if broken { // which validation cannot know
			c = configgen.Change{Kind: configgen.Taken, Field: "healthzPort", Value: taken.Addr().(*net.TCPAddr).Port, Named: "healthzPort"}
		}
		text := []byte(c.Text)
		if c.Field != "" {
			text, err = yaml.Marshal(c.With(fields))
			h.must(err)
		}
		kind := string(c.Kind)
		if broken {
			kind = "broken"
		}
		tried[kind]++
		victim, after := pickVictim(g), time.Duration(g.IntN(2500))*time.Millisecond
		if c.Kind == configgen.Fixed && victim == "run" {
			victim = "" // its start would take it
		}
		if victim != "" {
			tried["killed "+victim]++
		}
		h.Logf("%d: %s; killed is %q after %v", n, c, victim, after)
		started := h.startedIDs(victim)
		var kill sync.WaitGroup
		h.writeConfiguration(text)
		if victim != "" {
			kill.Go(func() { time.Sleep(after); h.killAnyOf(victim) })
		}
		kill.Wait() // what follows is true after a kill as well as without
		switch {
		case broken:
			h.wantNamed(c, liveconf.WentBack, "ConfigurationWentBack", n)
		case c.Kind == configgen.Taken:
			h.wantTaken(c)
			fields = c.With(fields)
		default:
			h.wantNamed(c, liveconf.Refused, "ConfigurationRefused", n)
			if victim == "" {
				h.wantPIDs(started)
			}
		}
		if h.Failed() {
			return
		}
	}
}

// pickVictim is the owner of the configuration, a service, or nobody.
func pickVictim(g *configgen.Generator) string {
	switch n := g.IntN(10); {
	case n < 5:
		return ""
	case n < 7:
		return "run"
	default:
		return node.Services()[g.IntN(len(node.Services()))]
	}
}

// startedIDs are the processes that no change may end, if none is to be killed: the last
// change's victim may still be on its way back.
func (h *house) startedIDs(victim string) map[string]int {
	h.Helper()
	if victim != "" {
		return nil
	}
	h.quietly(time.Minute, "the five processes run", func() error {
		for _, name := range node.Services() {
			if _, err := childOf(h.node.Processes["run"].Pid(), name); err != nil {
				return err
			}
		}
		return nil
	})
	return h.pids()
}

// killAnyOf kills polylet run, which is started again, or one of its services, if that is
// there just now.
func (h *house) killAnyOf(victim string) {
	run := h.node.Processes["run"]
	if victim != "run" {
		if pid, err := childOf(run.Pid(), victim); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
		return
	}
	run.Kill()
	if err := run.Launch(); err != nil {
		h.Error(err)
	}
}

// writeConfiguration writes the file in one step.
func (h *house) writeConfiguration(text []byte) {
	h.Helper()
	fresh := h.node.ConfigFile + ".new"
	h.must(os.WriteFile(fresh, text, 0o600))
	h.must(os.Rename(fresh, h.node.ConfigFile))
}

// awaitState waits for how the configuration stands.
func (h *house) awaitState(what string, is func(liveconf.State) error) {
	h.Helper()
	h.quietly(90*time.Second, what, func() error {
		var s liveconf.State
		raw, err := os.ReadFile(filepath.Join(h.node.SocketDir, "nodestatus", "config-state.json"))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("half a state: %w", err)
		}
		if err := is(s); err != nil {
			return fmt.Errorf("%+v: %w", s, err)
		}
		return nil
	})
}

// wantTaken waits until the configuration is what the files say, and good.
func (h *house) wantTaken(c configgen.Change) {
	h.Helper()
	said, err := kubeletconfig.LoadAgain(h.node.Flags())
	h.must(err)
	sum := configslice.WholeChecksum(said.Fields())
	h.awaitState(c.String(), func(s liveconf.State) error {
		return boolError(s.Phase == liveconf.Good && s.Checksum == sum && s.Error == "", "the files say %s", sum)
	})
	h.quietly(30*time.Second, "no error is shown", func() error { return h.configError("0") })
}

// wantNamed waits until the node says everywhere what is wrong with the files.
func (h *house) wantNamed(c configgen.Change, phase liveconf.Phase, reason string, n int) {
	h.Helper()
	h.awaitState(c.String(), func(s liveconf.State) error {
		return boolError(s.Phase == phase && strings.Contains(s.Error, c.Named), "no %q", c.Named)
	})
	h.quietly(30*time.Second, "the metric says so", func() error { return h.configError("1") })
	h.quietly(30*time.Second, "polylet status says so", func() error {
		out, err := h.polylet("status")
		return boolError(err == nil && strings.Contains(out, "nodestatus: configuration: ") && strings.Contains(out, c.Named), "%s %v", out, err)
	})
	if n < 20 { // an agent's events of one object are bounded
		h.quietly(30*time.Second, fmt.Sprintf("an event %s names %q", reason, c.Named), func() error {
			list, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
			if err != nil {
				return err
			}
			for _, e := range list.Items {
				if strings.Contains(e.Message, c.Named) {
					return nil
				}
			}
			return fmt.Errorf("%d events", len(list.Items))
		})
	}
	log, err := os.ReadFile(h.node.Processes["run"].LogFile())
	h.must(err)
	if !strings.Contains(string(log), c.Named) {
		h.Errorf("the log does not name %q", c.Named)
	}
}

func (h *house) configError(want string) error {
	res, err := http.Get(h.node.ReadOnlyURL + "/metrics") //nolint:noctx // Bounded by the test.
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	return boolError(strings.Contains(string(text), "polylet_config_error "+want+"\n"), "not %s", want)
}
