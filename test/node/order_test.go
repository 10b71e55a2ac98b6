package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/images"
)

// TestTheLifecycleByTheBook plays stories about the order of things in a pod's
// life on one node, one after the other.
func TestTheLifecycleByTheBook(t *testing.T) {
	whole := build(t, plan{})
	whole.play([]story{
		{"sidecars run their preStop hooks at once and end after the containers in reverse order", sidecarsEnd},
		{"an exit that a rule names restarts all containers from the first init container on", restartsAll},
		{"a removed static pod keeps its mirror until it has ended", staticKeepsMirror},
		{"a static pod past its deadline does not run again after a restart", staticDeadline},
		{"a pod whose sandbox is taken away starts again in a new one", func(h *house) { sandboxTaken(h, "robbed", 1) }},
		{"a pod of three containers whose sandbox is taken away starts each once more", func(h *house) { sandboxTaken(h, "robbed-of-three", 3) }},
		{"a debug container sees the processes of the container that it names", debugContainer},
		{"a container says its last words from its log and why it ended", lastWords},
		{"a deletion cuts a postStart hook that hangs", hangingPostStart},
	})
}

// TestTheLifecycleWithoutAnApiserver plays those of the stories that need none
// with static pods.
func TestTheLifecycleWithoutAnApiserver(t *testing.T) {
	whole := build(t, plan{standalone: true})
	whole.play([]story{
		{"sidecars run their preStop hooks at once and end after the containers in reverse order", sidecarsEnd},
		{"an exit that a rule names restarts all containers from the first init container on", restartsAll},
		{"a static pod past its deadline does not run again after a restart", staticDeadline},
		{"a container says its last words from its log and why it ended", lastWords},
	})
}

// place brings a pod to the node: through the apiserver, or as a static pod when
// there is none.
func (h *house) place(p *corev1.Pod) {
	h.Helper()
	if h.cluster != nil {
		h.create(p)
		return
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	data, err := json.Marshal(p)
	h.must(err)
	h.must(h.node.AddStaticPod(p.Name+".yaml", string(data)))
}

// stands is how a pod stands that was placed.
func (h *house) stands(name string) (*corev1.Pod, error) {
	if h.cluster != nil {
		return h.pod(name)
	}
	list, err := h.nodePods()
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].Name == name+"-"+nodeName {
			return &list.Items[i], nil
		}
	}
	return nil, fmt.Errorf("the node has no pod %s", name)
}

func (h *house) waitPlaced(name string, within time.Duration) *corev1.Pod {
	h.Helper()
	var got *corev1.Pod
	h.eventually(within, name+" is Ready", func() error {
		p, err := h.stands(name)
		if err != nil {
			return err
		}
		got = p
		return boolError(isReady(p), "%s", describe(p))
	})
	return got
}

// withdraw takes a placed pod away and waits until nothing of it runs.
func (h *house) withdraw(name string, within time.Duration) {
	h.Helper()
	if h.cluster != nil {
		h.delete(name)
		h.waitGone(name, within)
		return
	}
	h.must(h.removeStaticPod(name + ".yaml"))
	h.eventually(within, name+" has ended", func() error {
		ids, err := h.containerIDs()
		if err != nil {
			return err
		}
		return boolError(!strings.Contains(fmt.Sprint(ids), name+"-"+nodeName), "containers %v", ids)
	})
}

// scribe is a container that writes to the file /notes/log what happens to it:
// when it is asked to end it takes the given seconds.
func scribe(name string, seconds int, preStop string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: images.BusyBox, VolumeMounts: []corev1.VolumeMount{{Name: "notes", MountPath: "/notes"}},
		Command: []string{"sh", "-c", fmt.Sprintf(`trap 'echo %s term >> /notes/log; sleep %d; echo %s end >> /notes/log; exit 0' TERM; echo %s start >> /notes/log; while :; do sleep 0.05; done`, name, seconds, name, name)},
	}
	if preStop != "" {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", preStop}}}}
	}
	return c
}

// noted gives the pod a directory of the host's for its notes, and returns a
// function that reads them.
func (h *house) noted(p *corev1.Pod) func() []string {
	h.Helper()
	dir, err := h.inst.Mkdir("notes-" + p.Name)
	h.must(err)
	h.must(os.Chmod(dir, 0o777)) //nolint:gosec // containers write here
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "notes", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}})
	return func() []string {
		data, err := os.ReadFile(dir + "/log")
		if err != nil {
			return nil
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
}

// inOrder checks that the notes have these lines in this order, others between.
func (h *house) inOrder(notes []string, want ...string) {
	h.Helper()
	if err := ordered(notes, want); err != nil {
		h.Error(err)
	}
}

func ordered(notes, want []string) error {
	at := 0
	for _, line := range notes {
		if at < len(want) && line == want[at] {
			at++
		}
	}
	if at < len(want) {
		return fmt.Errorf("%q does not come where it should; the notes are\n%s", want[at], strings.Join(notes, "\n"))
	}
	return nil
}

func sidecarsEnd(h *house) {
	p := app("orderly", "sleep")
	notes := h.noted(p)
	first, second := scribe("first", 0, "echo first hook >> /notes/log"), scribe("second", 1, "")
	first.RestartPolicy, second.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways), ptr(corev1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers = []corev1.Container{first, second}
	main := scribe("main", 0, "")
	// It ends when the hook has run beside it, and in vain after 15 s.
	main.Command[2] = strings.Replace(main.Command[2], "sleep 0;", `n=0; until grep -q "first hook" /notes/log || [ $n = 150 ]; do n=$((n+1)); sleep 0.1; done;`, 1)
	p.Spec.Containers = []corev1.Container{main}
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(40))
	h.place(p)
	h.waitPlaced(p.Name, time.Minute)
	h.eventually(time.Minute, "all have begun", func() error {
		return boolError(len(notes()) == 3, "notes %q", notes())
	})
	h.inOrder(notes(), "first start", "second start", "main start")
	h.withdraw(p.Name, time.Minute)
	h.inOrder(notes(), "main term", "main end", "second term", "second end", "first term", "first end")
	h.inOrder(notes(), "first hook", "main end")
}

func restartsAll(h *house) {
	p := app("again", "sleep")
	notes := h.noted(p)
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	mount := []corev1.VolumeMount{{Name: "notes", MountPath: "/notes"}}
	side := scribe("side", 0, "")
	side.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers = []corev1.Container{
		{Name: "init", Image: images.BusyBox, VolumeMounts: mount, Command: []string{"sh", "-c", "echo init start >> /notes/log"}}, side,
	}
	p.Spec.Containers = []corev1.Container{scribe("other", 0, ""), {
		Name: "cause", Image: images.BusyBox, VolumeMounts: mount,
		Command:       []string{"sh", "-c", "echo cause start >> /notes/log; test -e /notes/done && sleep 3600; touch /notes/done; sleep 2; exit 42"},
		RestartPolicy: ptr(corev1.ContainerRestartPolicyNever),
		RestartPolicyRules: []corev1.ContainerRestartRule{{
			Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}},
	}}
	h.place(p)
	ready := h.waitPlaced(p.Name, time.Minute)
	h.eventually(time.Minute, "all have restarted once", func() error {
		now, err := h.stands(p.Name)
		if err != nil {
			return err
		}
		for _, cs := range append(now.Status.InitContainerStatuses, now.Status.ContainerStatuses...) {
			if cs.RestartCount != 1 || cs.LastTerminationState.Terminated == nil {
				return fmt.Errorf("container %s: %s", cs.Name, cs.String())
			}
			if last := cs.LastTerminationState.Terminated; cs.Name != "cause" && last.Reason != "RestartingAllContainers" || cs.Name == "cause" && last.ExitCode != 42 {
				return fmt.Errorf("container %s: last state %s", cs.Name, last)
			}
		}
		ok := isReady(now) && now.Status.PodIP == ready.Status.PodIP && now.Status.Phase == corev1.PodRunning
		return boolError(ok, "%s", describe(now))
	})
	// A shell says that it has begun a little after its container has.
	h.eventually(time.Minute, "all have said so, in order", func() error {
		return ordered(notes(), []string{"init start", "side start", "cause start", "init start", "side start", "cause start"})
	})
	h.withdraw(p.Name, time.Minute)
}

func staticKeepsMirror(h *house) {
	manifest := strings.Replace(staticManifest("leaving", "sleep"), "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 20", 1)
	manifest += `    lifecycle:
      preStop:
        sleep:
          seconds: 6
`
	name := "leaving-" + nodeName
	h.must(h.node.AddStaticPod("leaving.yaml", manifest))
	h.waitReady(name, time.Minute)
	ids, err := h.containerIDs()
	h.must(err)
	began := time.Now()
	h.must(h.removeStaticPod("leaving.yaml"))
	for time.Since(began) < 4*time.Second {
		p, err := h.pod(name)
		h.must(err)
		if p.DeletionTimestamp != nil && time.Since(began) < 6*time.Second { // the hook runs so long
			h.Fatalf("the mirror is being deleted %s after the manifest went, while the pod runs", time.Since(began))
		}
		time.Sleep(200 * time.Millisecond)
	}
	h.waitGone(name, time.Minute)
	h.Logf("the mirror went %s after the manifest; containers before: %d", time.Since(began).Round(time.Millisecond), len(ids))
}

func staticDeadline(h *house) {
	manifest := strings.Replace(staticManifest("brief", "sleep"), "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 1\n  activeDeadlineSeconds: 5", 1)
	name := "brief-" + nodeName
	h.must(h.node.AddStaticPod("brief.yaml", manifest))
	stands := func() (*corev1.Pod, error) {
		if h.cluster != nil {
			return h.pod(name)
		}
		return h.stands("brief")
	}
	ended := func() error {
		p, err := stands()
		if err != nil {
			return err
		}
		ok := p.Status.Phase == corev1.PodFailed && p.Status.Reason == "DeadlineExceeded"
		return boolError(ok, "%s", describe(p))
	}
	h.eventually(2*time.Minute, "it has failed with DeadlineExceeded", ended)
	before, err := stands()
	h.must(err)
	if h.cluster != nil {
		// Without the mirror nobody but the node itself knows that it has ended.
		h.must(h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(h.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr(int64(0))}))
	}
	h.killService("podsync")
	h.eventually(2*time.Minute, "it has failed again", ended)
	time.Sleep(3 * time.Second)
	after, err := stands()
	h.must(err)
	was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if is.ContainerID != was.ContainerID || is.RestartCount != was.RestartCount || is.State.Terminated == nil || !after.Status.StartTime.Equal(before.Status.StartTime) {
		h.Errorf("before the restart of podsync %s, started %v\nafter it %s, started %v", was.String(), before.Status.StartTime, is.String(), after.Status.StartTime)
	}
	h.must(h.removeStaticPod("brief.yaml"))
	if h.cluster != nil {
		h.waitGone(name, time.Minute)
	}
}

func sandboxTaken(h *house, name string, containers int) {
	p := webApp(name)
	for n := 1; n < containers; n++ {
		other := app(name, "sleep").Spec.Containers[0]
		other.Name = fmt.Sprintf("other-%d", n)
		p.Spec.Containers = append(p.Spec.Containers, other)
	}
	h.create(p)
	was := map[string]string{}
	for _, cs := range h.waitReady(p.Name, time.Minute).Status.ContainerStatuses {
		was[cs.Name] = cs.ContainerID
	}
	list, err := h.sandboxes(p.Name)
	h.must(err)
	// podsync may stop it too as soon as a container has ended: of two that
	// take a network down at once, the runtime tells one that it is gone.
	h.eventually(time.Minute, "its sandbox is taken", func() error {
		if _, err := h.runtime.Runtime().StopPodSandbox(h.ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: list[0].GetId()}); err != nil {
			return err
		}
		_, err := h.runtime.Runtime().RemovePodSandbox(h.ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: list[0].GetId()})
		return err
	})
	h.eventually(time.Minute, "it is Ready in a new sandbox; one restart is counted of each, and how its containers ended is kept", func() error {
		now, err := h.pod(p.Name)
		if err != nil {
			return err
		}
		list, err := h.sandboxes(p.Name)
		if err != nil {
			return err
		}
		ok := isReady(now) && len(list) > 0 && len(now.Status.ContainerStatuses) == containers
		for _, cs := range now.Status.ContainerStatuses {
			last := cs.LastTerminationState.Terminated
			if ok = ok && cs.RestartCount == 1 && last != nil && last.ContainerID == was[cs.Name] && last.ExitCode == 137; !ok {
				return fmt.Errorf("%s, last state of %s %+v; was %s", describe(now), cs.Name, cs.LastTerminationState, was[cs.Name])
			}
		}
		return boolError(ok, "%s", describe(now))
	})
	h.delete(p.Name)
	h.waitGone(p.Name, time.Minute)
}

func debugContainer(h *house) {
	p := app("debugged", "sleep")
	h.create(p)
	h.waitReady(p.Name, time.Minute)
	now, err := h.pod(p.Name)
	h.must(err)
	now.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: images.BusyBox, Command: []string{"sh", "-c", "ps; exit 3"}, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		},
		TargetContainerName: now.Spec.Containers[0].Name,
	}}
	_, err = h.cluster.Client.CoreV1().Pods(metav1.NamespaceDefault).UpdateEphemeralContainers(h.ctx, p.Name, now, metav1.UpdateOptions{})
	h.must(err)
	h.eventually(time.Minute, "it has seen the other's process and ended for good", func() error {
		now, err := h.pod(p.Name)
		if err != nil || len(now.Status.EphemeralContainerStatuses) == 0 {
			return fmt.Errorf("no status yet: %w", err)
		}
		cs := now.Status.EphemeralContainerStatuses[0]
		ok := cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 3 && strings.Contains(cs.State.Terminated.Message, "/testapp") && cs.RestartCount == 0
		return boolError(ok, "%s", cs.String())
	})
	h.delete(p.Name)
	h.waitGone(p.Name, time.Minute)
}

func lastWords(h *house) {
	p := app("talker", "x")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers = []corev1.Container{
		{Name: "log", Image: images.BusyBox, Command: []string{"sh", "-c", "seq 1 200; exit 5"}, TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError},
		{Name: "file", Image: images.BusyBox, Command: []string{"sh", "-c", "printf bye > /dev/termination-log"}},
		{Name: "wrong", Image: images.BusyBox, Command: []string{"/no/such/program"}},
	}
	h.place(p)
	h.eventually(time.Minute, "each state is as the book says", func() error {
		now, err := h.stands(p.Name)
		if err != nil {
			return err
		}
		if now.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("%s", describe(now))
		}
		for _, cs := range now.Status.ContainerStatuses {
			end := cs.State.Terminated
			if end == nil {
				return fmt.Errorf("%s", cs.String())
			}
			ok := map[string]bool{
				"log":   end.ExitCode == 5 && end.Reason == "Error" && strings.HasPrefix(end.Message, "121\n") && strings.HasSuffix(end.Message, "200\n"),
				"file":  end.ExitCode == 0 && end.Reason == "Completed" && end.Message == "bye",
				"wrong": end.ExitCode == 128 && end.Reason == "StartError",
			}[cs.Name]
			if !ok {
				return fmt.Errorf("container %s: %+v", cs.Name, end)
			}
		}
		return nil
	})
	h.withdraw(p.Name, time.Minute)
}

func hangingPostStart(h *house) {
	p := app("stuck", "sleep")
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(2))
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/testapp", "sleep"}}}}
	h.create(p)
	h.eventually(time.Minute, "its container runs and the pod is not Ready", func() error {
		ids, err := h.containerIDs()
		if err != nil {
			return err
		}
		return boolError(strings.Contains(fmt.Sprint(ids), "stuck"), "containers %v", ids)
	})
	time.Sleep(2 * time.Second)
	now, err := h.pod(p.Name)
	h.must(err)
	if isReady(now) {
		h.Errorf("it is Ready though its hook runs: %s", describe(now))
	}
	h.delete(p.Name)
	h.waitGone(p.Name, time.Minute)
}
