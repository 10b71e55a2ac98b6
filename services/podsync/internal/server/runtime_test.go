package server

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/podsync/internal/host/devices"
)

func TestTheRuntimeIsDescribed(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.state = RuntimeState{
			Version: &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2"},
			Status: &runtimeapi.StatusResponse{
				Status:          &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady", Message: "cni"}}},
				RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {}},
			},
		}
		resp, err := r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{})
		if err != nil || !resp.GetRuntimeReady() || resp.GetNetworkReady() || resp.GetNetworkMessage() != "reason:NetworkPluginNotReady message:cni" {
			t.Fatalf("response %v, error %v", resp, err)
		}
		if left := resp.GetKubeletDevices(); left == nil || left.GetCheckpoint() || len(left.GetResources()) > 0 {
			t.Errorf("devices of no kubelet: %v", left)
		}
		r.state.Devices = devices.Known{Checkpoint: true, Resources: []v1.ResourceName{"example.com/gpu"}}
		if resp, err = r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || !resp.GetKubeletDevices().GetCheckpoint() || !slices.Equal(resp.GetKubeletDevices().GetResources(), []string{"example.com/gpu"}) {
			t.Fatalf("response %v, error %v", resp, err)
		}
		// nodestatus knows by "reason:" that this is the runtime's own word.
		r.state.Status.Status.Conditions[0] = &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Reason: "Booting", Message: "wait"}
		if resp, err = r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || resp.GetRuntimeReady() || resp.GetRuntimeMessage() != "reason:Booting message:wait" {
			t.Fatalf("response %v, error %v", resp, err)
		}
		r.state.Status.Status.Conditions = nil
		if resp, err = r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || resp.GetRuntimeReady() || resp.GetRuntimeMessage() != "reason:NotReported message:the runtime's status has no condition RuntimeReady" {
			t.Fatalf("response %v, error %v", resp, err)
		}
		if h := resp.GetHandlers(); len(h) != 2 || h[0].GetName() != "" || !h[1].GetUserNamespaces() {
			t.Fatalf("handlers %v", h)
		}
		r.state.Err = errors.New("connection refused")
		if resp, err = r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || resp.GetRuntimeReady() || !strings.Contains(resp.GetRuntimeMessage(), "connection refused") {
			t.Fatalf("response %v, error %v", resp, err)
		}
		if resp.GetToldPressure() != nil {
			t.Fatalf("nobody has said anything of pressure: %v", resp)
		}
		r.state.Pressure, r.state.PressureSaid = []v1.NodeConditionType{v1.NodeDiskPressure}, time.Now().Add(-time.Minute)
		if resp, err = r.client.GetRuntime(t.Context(), &podsyncv1.GetRuntimeRequest{}); err != nil || !slices.Equal(resp.GetToldPressure().GetConditions(), []string{"DiskPressure"}) || !resp.GetToldPressure().GetTime().AsTime().Equal(time.Now().Add(-time.Minute)) {
			t.Fatalf("response %v, error %v", resp, err)
		}
		images, err := r.client.ListImages(t.Context(), &podsyncv1.ListImagesRequest{})
		if err != nil || images.GetImages()[0].GetId() != "big" || len(images.GetImages()[1].GetRepoTags()) != mostImageNames {
			t.Fatalf("images %v, error %v", images, err)
		}
		usage, err := r.client.ListFilesystemUsage(t.Context(), &podsyncv1.ListFilesystemUsageRequest{})
		if err != nil || len(usage.GetWritableLayers()) != 1 || usage.GetWritableLayers()[0].GetUsage().GetUsedBytes() != 42 || usage.GetImageFilesystems()[0].GetMountpoint() != "/m" || usage.GetSandboxImage() != "pause:3" {
			t.Fatalf("usage %v, error %v", usage, err)
		}
		running, err := r.client.ListRuntimePods(t.Context(), &podsyncv1.ListRuntimePodsRequest{})
		if err != nil || len(running.GetPods()) != 0 {
			t.Fatalf("running %v, error %v", running, err)
		}
	})
}
