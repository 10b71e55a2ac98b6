package node_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/polylet/polylet/test/harness/node"
)

const (
	// killsEach is how often each of the five processes is killed.
	killsEach = 20
	// bystanders is how many pods must not notice.
	bystanders = 20
	// newcomerEvery says after how many kills a new pod is created.
	newcomerEvery = 10
	// standsEvery says after how many kills the node is let stand up: what never does on a
	// slow machine is not Ready, as it should.
	standsEvery = 20
)

// Nothing happens to pods when any process is killed: the promise of the design,
// crash-only, in any order, under load. Once with each process on its own, as
// systemd runs them, and once with the children of `polylet run`.

func TestPodsDoNotNoticeThatProcessesAreKilled(t *testing.T) { killProcesses(t, plan{}) }

func TestPodsDoNotNoticeThatChildrenOfPolyletRunAreKilled(t *testing.T) {
	killProcesses(t, plan{supervised: true})
}

func killProcesses(t *testing.T, p plan) {
	h := build(t, p)
	for n := range bystanders {
		h.create(webApp(fmt.Sprintf("bystander-%d", n)))
	}
	for n := range bystanders {
		h.waitReady(fmt.Sprintf("bystander-%d", n), 3*time.Minute)
	}
	before, err := h.containerIDs()
	h.must(err)
	guard := h.guard()
	newcomers := h.killAll()
	for _, name := range newcomers {
		h.waitReady(name, 2*time.Minute)
	}
	h.eventually(time.Minute, "the node is healthy", func() error { return h.node.Healthy(h.ctx) })
	h.waitNodeReady()
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

// killAll kills each process the agreed number of times in random order, each
// time at a random moment after its last start, and returns the pods created
// meanwhile. The order's seed is printed and can be given again.
func (h *house) killAll() (newcomers []string) {
	h.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("POLYLET_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		h.must(err)
	}
	h.Logf("the order of the kills: POLYLET_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var order []string
	// Each once a round: a supervisor lets what dies young again and again wait, and what
	// is killed as soon as it stands for a minute has the Node not Ready, as it should.
	for range killsEach {
		round := slices.Clone(node.Services())
		random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		order = append(order, round...)
	}
	for n, name := range order {
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		if n%newcomerEvery == 0 {
			newcomer := fmt.Sprintf("newcomer-%d", n/newcomerEvery)
			h.create(webApp(newcomer))
			newcomers = append(newcomers, newcomer)
		}
		h.killService(name)
		if (n+1)%standsEvery == 0 {
			h.quietly(time.Minute, "the node answers between the kills", func() error {
				for _, document := range []string{"/pods", "/stats/summary"} {
					if _, err := h.nodeAPI(document); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return newcomers
}

// killService kills a process that runs, and starts it again where no supervisor
// does.
func (h *house) killService(name string) {
	h.Helper()
	run, supervised := h.node.Processes["run"]
	if supervised {
		var pid int
		h.quietly(time.Minute, name+" runs", func() error {
			var err error
			pid, err = childOf(run.Pid(), name)
			return err
		})
		h.must(syscall.Kill(pid, syscall.SIGKILL))
		return
	}
	p := h.node.Processes[name]
	select {
	case <-p.Done():
		h.Fatalf("%s had ended by itself: %v", name, p.ExitErr())
	default:
	}
	p.Kill()
	h.must(p.Launch())
}

// childOf finds the process that parent has started for a service.
func childOf(parent int, service string) (int, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	if err != nil {
		return 0, err
	}
	var all []string
	for _, t := range threads {
		children, err := os.ReadFile(t)
		if err != nil {
			continue // the thread has ended
		}
		all = append(all, strings.Fields(string(children))...)
	}
	for _, text := range all {
		line, _ := os.ReadFile("/proc/" + text + "/cmdline")
		args := strings.Split(string(line), "\x00")
		if len(args) > 1 && args[1] == service {
			return strconv.Atoi(text)
		}
	}
	return 0, fmt.Errorf("process %d has no child %q among %v", parent, service, all)
}

// sentinel follows pods and the Node and collects everything that must not
// happen.
type sentinel struct {
	watches []watch.Interface
	done    sync.WaitGroup

	mu         sync.Mutex
	stopped    bool
	events     int
	complaints []string
}

// guard starts to watch the bystanders and the Node.
func (h *house) guard() *sentinel {
	h.Helper()
	s := &sentinel{}
	core := h.cluster.Client.CoreV1()
	pods, err := core.Pods(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{})
	h.must(err)
	settled := map[string]string{}
	for _, p := range pods.Items {
		settled[p.Name] = p.Status.ContainerStatuses[0].ContainerID
	}
	podWatch, err := core.Pods(metav1.NamespaceDefault).Watch(h.ctx, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	h.must(err)
	nodeWatch, err := core.Nodes().Watch(h.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + nodeName})
	h.must(err)
	s.watches = []watch.Interface{podWatch, nodeWatch}
	for _, w := range s.watches {
		s.done.Go(func() {
			for event := range w.ResultChan() {
				s.look(event, settled)
			}
			s.mu.Lock()
			early := !s.stopped
			s.mu.Unlock()
			if early {
				s.complain("a watch ended early: nobody looked any more")
			}
		})
	}
	return s
}

func (s *sentinel) look(event watch.Event, settled map[string]string) {
	s.mu.Lock()
	s.events++
	s.mu.Unlock()
	switch o := event.Object.(type) {
	case *corev1.Pod:
		id, bystander := settled[o.Name]
		switch {
		case !bystander:
		case event.Type == watch.Deleted:
			s.complain("pod %s was deleted", o.Name)
		case !isReady(o):
			s.complain("pod %s stopped being Ready: %s", o.Name, describe(o))
		case o.Status.ContainerStatuses[0].RestartCount != 0, o.Status.ContainerStatuses[0].ContainerID != id:
			s.complain("pod %s was restarted: %s", o.Name, describe(o))
		}
	case *corev1.Node:
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				s.complain("the Node is not Ready: %s: %s", c.Reason, c.Message)
			}
		}
	}
}

func (s *sentinel) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.complaints = append(s.complaints, fmt.Sprintf("%s: ", time.Now().Format("15:04:05.000"))+fmt.Sprintf(format, args...))
}

// stop ends the watches and returns what was seen.
func (s *sentinel) stop() []string {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	for _, w := range s.watches {
		w.Stop()
	}
	s.done.Wait()
	if s.events == 0 {
		s.complain("the watches saw nothing at all")
	}
	return s.complaints
}
