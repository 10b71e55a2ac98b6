package vm

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// limitKills are the kernel's words of a kill because a cgroup's limit was used up.
const limitKills = "Memory cgroup out of memory"

// TestJoinedWhomTheKernelKillsForMemoryIsToldWhetherTheContainerLivesOnOrNot is test/node's on
// cgroup v2: there a whole container is ended with one of its processes, but for
// singleProcessOOMKill.
func TestJoinedWhomTheKernelKillsForMemoryIsToldWhetherTheContainerLivesOnOrNot(t *testing.T) {
	client := joinedCluster(t)
	fields := plainMemory(map[string]string{"evictionHard": "{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}", "singleProcessOOMKill": "true"})
	before := reconfigure(t, fields, "")
	defer restart(t, before)
	wantNoPressure(t, client)

	message := starves(t, client, "parent", "child")
	p := runs(t, client, "parent")
	if c := containerOf(p, "app"); c.RestartCount != 0 || c.State.Running == nil || c.LastTerminationState.Terminated != nil {
		t.Errorf("the container whose child was killed did not live on: %+v", c)
	}
	eventually(t, "the kill is counted", func() error {
		body, err := get(readOnly + "/metrics/cadvisor")
		if found := regexp.MustCompile(`(?m)^container_oom_events_total\{container="app",.*pod="parent"\} (\S+)`).FindSubmatch(body); err == nil && (len(found) != 2 || string(found[1]) != "1") {
			err = fmt.Errorf("%q", found)
		}
		return err
	})
	explained := "process " + strings.TrimPrefix(strings.Replace(message, " was killed, for", ", for", 1), "Process ")
	eventually(t, "polylet explain names the kill", func() error { // stats may answer late, which it says
		out, err := exec.Command("/usr/bin/polylet", "explain", "default/parent").CombinedOutput()
		if err == nil && !strings.Contains(string(out), explained) {
			err = errors.New("it does not")
		}
		if err != nil {
			err = fmt.Errorf("%q: %w\n%s", explained, err, out)
		}
		return err
	})
	starves(t, client, "first", "take")
	wantKilled(t, client, "first", "0")

	fields["singleProcessOOMKill"] = "false"
	reconfigure(t, fields, "")
	wantNoPressure(t, client)
	starves(t, client, "whole", "child")
	wantKilled(t, client, "whole", "1")
	if c := containerOf(runs(t, client, "parent"), "app"); c.RestartCount != 0 || c.LastTerminationState.Terminated != nil {
		t.Errorf("the container of before: %+v", c)
	}
	goes(t, client, "parent", "first", "whole")
}

// starves creates a pod whose container takes twice what it may, by itself or by a child,
// beside one that does not, and waits for the event that says whom the kernel has killed. It
// returns that.
func starves(t *testing.T, client kubernetes.Interface, name, command string) (message string) {
	t.Helper()
	const limited = 64
	memory := fmt.Sprintf("%dMi", limited)
	hungry := bind(name, command, fmt.Sprintf("mebibytes=%d", 2*limited))
	hungry.Spec.Containers[0].Resources = testPod("", "50m", memory, "500m", memory).Spec.Containers[0].Resources
	beside := *hungry.Spec.Containers[0].DeepCopy() // with it, the pod may have more than that
	beside.Name, beside.Args = "beside", []string{"sleep"}
	hungry.Spec.Containers = append(hungry.Spec.Containers, beside)
	before := len(killsOf(t, limitKills))
	create(t, client, hungry)
	var victim string
	eventually(t, "the kernel kills somebody of "+name, func() error {
		news := killsOf(t, limitKills)[before:]
		if len(news) == 0 {
			return errors.New("it does not")
		}
		victim = news[0]
		return nil
	})
	pid, process, _ := strings.Cut(strings.TrimSuffix(victim, ")"), " (")
	message = fmt.Sprintf("Process %s (pid %s) of container app was killed, for its memory limit was used up", process, pid)
	eventually(t, "an event says so", func() error {
		said := events(t, client, "reason=OOMKilling,involvedObject.name="+name)
		if len(said) != 1 || said[0].Message != message || said[0].Type != corev1.EventTypeWarning || said[0].InvolvedObject.FieldPath != "spec.containers{app}" {
			return fmt.Errorf("want %q; there are %+v", message, said)
		}
		return nil
	})
	return message
}

// containerOf is what a pod's status says of one of its containers.
func containerOf(p *corev1.Pod, name string) (s corev1.ContainerStatus) {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == name {
			return s
		}
	}
	return s
}

// wantKilled waits until a pod's status says that the container was killed, and wants the one
// beside it to run, in a cgroup that has this as its memory.oom.group.
func wantKilled(t *testing.T, client kubernetes.Interface, name, group string) {
	t.Helper()
	eventually(t, name+" is OOMKilled", func() error {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		app, beside := containerOf(p, "app"), containerOf(p, "beside")
		if end := app.State.Terminated; end == nil || end.Reason != "OOMKilled" || end.ExitCode != 137 {
			return fmt.Errorf("%+v", p.Status.ContainerStatuses)
		}
		scope := filepath.Join(sliceOf("burstable", p), "cri-containerd-"+strings.TrimPrefix(beside.ContainerID, "containerd://")+".scope")
		if got := files(t, scope, "memory.oom.group"); got != group || beside.State.Running == nil {
			t.Errorf("memory.oom.group is %s, not %s: %+v", got, group, beside)
		}
		return nil
	})
}
