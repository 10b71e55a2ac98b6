package node_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/cadvisor/utils/oomparser"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpc"
)

// limited is what the containers may have that take more, in MiB: a hog takes twice as much.
const limited = 64

// hungry is a pod whose container takes more memory than it may, by itself or by a child.
// Beside it is another one, so that the pod may have more than that.
func hungry(name, command string) *corev1.Pod {
	p := app(name, command, fmt.Sprintf("mebibytes=%d", 2*limited))
	beside := app("", "sleep").Spec.Containers[0]
	beside.Name = "beside"
	p.Spec.Containers = append(p.Spec.Containers, beside)
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Resources = cpuAndMemory("50m", fmt.Sprintf("%dMi", limited), "500m", fmt.Sprintf("%dMi", limited))
	}
	return p
}

// appOf is what a pod's status says of the container that takes too much.
func appOf(p *corev1.Pod) (s corev1.ContainerStatus) {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == "app" {
			return s
		}
	}
	return s
}

// On cgroup v1, and on v2 with singleProcessOOMKill, the kernel ends one process of a
// container, and if that was not the first the container lives on: its status says nothing
// of it. On v2 without, all of them go (memory.oom.group).
func TestWhomTheKernelKillsForMemoryIsToldWhetherTheContainerLivesOnOrNot(t *testing.T) {
	h := build(t, plan{overrides: map[string]any{"singleProcessOOMKill": true}})
	cadvisor, err := oomparser.New()
	h.must(err)
	theirs := make(chan *oomparser.OomInstance, 1000)
	go cadvisor.StreamOoms(theirs)
	parent, whole := hungry("parent", "child"), hungry("whole", "take")
	h.create(parent, whole)
	h.play([]story{
		{"a child", func(h *house) { childWasKilled(h, theirs) }},
		{"a container", wholeWasKilled},
	})
}

// childWasKilled is of a pod whose container lives on; theirs are the kills that cAdvisor's
// parser reads in the same kernel's log.
func childWasKilled(h *house, theirs <-chan *oomparser.OomInstance) {
	p := h.waitReady("parent", time.Minute)
	id := strings.TrimPrefix(appOf(p).ContainerID, "containerd://")
	var kill *oomparser.OomInstance
	for over := time.After(2 * time.Minute); kill == nil; {
		select {
		case k := <-theirs:
			if strings.HasSuffix(k.ContainerName, "/"+id) {
				kill = k
			}
		case <-over:
			h.Fatalf("cAdvisor's parser finds no kill of %s", id)
		}
	}
	h.Logf("cAdvisor: %+v", *kill)
	if onKubelet() {
		return // It counts the kill and tells nobody.
	}
	message := fmt.Sprintf("Process %s (pid %d) of container app was killed, for its memory limit was used up", kill.ProcessName, kill.Pid)
	h.eventually(time.Minute, "an event says it, as cAdvisor's parser has it", func() error {
		list, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=OOMKilling,involvedObject.name=parent"})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d events", len(list.Items))
		}
		e := &list.Items[0]
		return boolError(e.Message == message && e.Type == corev1.EventTypeWarning && e.InvolvedObject.UID == p.UID && e.InvolvedObject.FieldPath == "spec.containers{app}", "%+v, want %q", e, message)
	})
	h.wantKill(p, kill)
	h.eventually(time.Minute, "the kill is counted", func() error {
		body, err := h.nodeAPI("/metrics/cadvisor")
		if err != nil {
			return err
		}
		line := regexp.MustCompile(`(?m)^container_oom_events_total\{container="app",.*pod="parent"\} (\S+)`).FindStringSubmatch(body)
		return boolError(len(line) == 2 && line[1] == "1", "%q", line)
	})
	killed := fmt.Sprintf("process %s (pid %d) of container app, for its memory limit was used up", kill.ProcessName, kill.Pid)
	h.eventually(time.Minute, "polylet explain names the kill", func() error { // stats may answer late, which it says
		out, err := h.polylet("explain", "parent")
		if err != nil {
			return err
		}
		return boolError(strings.Contains(out, killed), "without %q:\n%s", killed, out)
	})
	again, err := h.pod("parent")
	h.must(err)
	c := appOf(again)
	if !isReady(again) || restarts(again) > 0 || c.LastTerminationState.Terminated != nil || !strings.HasSuffix(c.ContainerID, id) {
		h.Errorf("the container whose child was killed did not live on: %s, %+v", describe(again), c)
	}
}

// wantKill compares what stats says of a kill with what cAdvisor's parser has read.
func (h *house) wantKill(p *corev1.Pod, kill *oomparser.OomInstance) {
	h.Helper()
	conn, err := rpc.Dial(filepath.Join(h.node.SocketDir, "stats.sock"))
	h.must(err)
	defer conn.Close()
	stream, err := statsv1.NewStatsServiceClient(conn).WatchOOMKills(h.ctx, &statsv1.WatchOOMKillsRequest{})
	h.must(err)
	frame, err := stream.Recv()
	h.must(err)
	for _, k := range frame.GetKills() {
		if k.GetPodUid() != string(p.UID) {
			continue
		}
		if k.GetProcess() != kill.ProcessName || int(k.GetPid()) != kill.Pid || k.GetCgroup() != kill.ContainerName || k.GetLimitCgroup() != kill.VictimContainerName || k.GetSystem() ||
			k.GetPodName() != p.Name || k.GetContainer() != "app" || k.GetTime().AsTime().Sub(kill.TimeOfDeath).Abs() > 2*time.Second { // cAdvisor's knows the time to the second.
			h.Errorf("stats has read %v, cAdvisor's parser %+v", k, kill)
		}
		return
	}
	h.Errorf("stats knows no kill of %s: %v", p.Name, frame.GetKills())
}

// wholeWasKilled is of a pod whose container's first process took too much.
func wholeWasKilled(h *house) {
	h.eventually(3*time.Minute, "its last state is OOMKilled, and it was started again", func() error {
		p, err := h.pod("whole")
		if err != nil {
			return err
		}
		// Of one of several the runtime may miss the kernel's word, for its cgroup is gone so soon.
		c := appOf(p)
		end := c.LastTerminationState.Terminated
		return boolError(end != nil && end.Reason == "OOMKilled" && end.ExitCode == 137 && c.RestartCount > 0, "%s", describe(p))
	})
	if onKubelet() {
		return
	}
	h.eventually(time.Minute, "an event says whose limit it was", func() error {
		text := h.events("whole")
		return boolError(regexp.MustCompile(`Warning OOMKilling: Process \S+ \(pid \d+\) of container app was killed, for its memory limit was used up`).MatchString(text), "%s", text)
	})
}
