package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/images"
)

// sandboxes asks the runtime itself for a pod's sandboxes.
func (h *house) sandboxes(pod string) ([]*runtimeapi.PodSandbox, error) {
	list, err := h.runtime.Runtime().ListPodSandbox(h.ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	var found []*runtimeapi.PodSandbox
	for _, s := range list.Items {
		if s.Metadata.Name == pod {
			found = append(found, s)
		}
	}
	return found, nil
}

func (h *house) noSandboxOf(pod string) error {
	found, err := h.sandboxes(pod)
	if err != nil {
		return err
	}
	for _, s := range found {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			return fmt.Errorf("sandbox %s of %s is still running", s.Id, pod)
		}
	}
	return nil
}

func (h *house) sandboxIP(pod string) (string, error) {
	found, err := h.sandboxes(pod)
	if err != nil {
		return "", err
	}
	for _, s := range found {
		status, err := h.runtime.Runtime().PodSandboxStatus(h.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if err == nil && status.Status.Network.GetIp() != "" {
			return status.Status.Network.Ip, nil
		}
	}
	return "", fmt.Errorf("the runtime has no sandbox with an address for pod %s", pod)
}

// containerIDs maps each running container of the runtime to its pod.
func (h *house) containerIDs() (map[string]string, error) {
	list, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	})
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	for _, c := range list.Containers {
		ids[c.Id] = c.Labels["io.kubernetes.pod.name"]
	}
	return ids, nil
}

// nodePods reads the node's own /pods.
func (h *house) nodePods() (*corev1.PodList, error) {
	body, err := h.tryGet(h.node.ReadOnlyURL + "/pods")
	if err != nil {
		return nil, err
	}
	pods := new(corev1.PodList)
	return pods, json.Unmarshal([]byte(body), pods)
}

func (h *house) removeStaticPod(file string) error {
	return os.Remove(filepath.Join(h.node.StaticPods, file))
}

// pushAs stores the test image in the registry under a further name.
func (h *house) pushAs(reference string) {
	h.Helper()
	h.must(images.PushTestApp(h.ctx, h.images, h.inst.Path("images"), reference))
}

// Each container may leave five dead ones here, and the node has room for three.
func TestTheNodeKeepsNoMoreDeadContainersThanItMay(t *testing.T) {
	const most = 3
	h := build(t, plan{standalone: true, flags: []string{"--maximum-dead-containers-per-container=5", fmt.Sprintf("--maximum-dead-containers=%d", most)}})
	names := []string{"one", "two"}
	for _, name := range names {
		p := staticPod(name, images.TestApp, "exit", "code=7")
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		h.addPod(p)
	}
	for _, name := range names {
		h.waitStatic(name, name+" has crashed four times", 4*time.Minute, func(p *corev1.Pod) error {
			return boolError(len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount >= 3, "%s", describe(p))
		})
	}
	h.eventually(time.Minute, "no more dead containers are left than may be", func() error {
		list, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{
			Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}},
		})
		if err != nil {
			return err
		}
		return boolError(len(list.GetContainers()) <= most, "%d dead containers", len(list.GetContainers()))
	})
	for _, name := range names {
		h.waitStatic(name, name+" says how it ended last", time.Minute, func(p *corev1.Pod) error {
			st := p.Status.ContainerStatuses[0]
			last := st.LastTerminationState.Terminated
			if last == nil {
				last = st.State.Terminated
			}
			return boolError(last != nil && last.ExitCode == 7 && st.RestartCount >= 3, "%+v", st)
		})
	}
}
