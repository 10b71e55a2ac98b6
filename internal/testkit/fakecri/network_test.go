package fakecri_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func (n *node) stopSandbox(ctx context.Context, id string) error {
	_, err := n.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// is checks the state of the only sandbox and of its network.
func (n *node) is(when, state string, network, address bool) {
	n.t.Helper()
	s := n.Snapshot().Sandboxes[0]
	if s.State != state || s.Network != network || (s.IP != "") != address {
		n.t.Errorf("%s: the sandbox is %s, network up: %v, address %q", when, s.State, s.Network, s.IP)
	}
}

func TestANetworkThatCannotBeTakenDownStaysUpBehindASandboxThatIsNotReady(t *testing.T) {
	bubble(t, fakecri.Config{}, func(ctx context.Context, n *node) {
		id, _ := n.sandbox(ctx, "p")
		n.is("at first", fakecri.Ready, true, true)
		n.FailTeardowns(2)
		if err := n.stopSandbox(ctx, id); status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "failed to destroy network for sandbox") {
			t.Errorf("stop: %v", err)
		}
		n.is("after a stop that failed", fakecri.NotReady, true, true)
		if _, err := n.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err == nil || !strings.Contains(err.Error(), "failed to forcibly stop sandbox") {
			t.Errorf("remove: %v", err)
		}
		n.is("after a removal that failed", fakecri.NotReady, true, true)
		if err := n.stopSandbox(ctx, id); err != nil {
			t.Error(err)
		}
		n.is("after a stop that worked", fakecri.NotReady, false, false)
	})
}

func TestTeardownsFailAsTheConfigurationSays(t *testing.T) {
	var asked []int
	cfg := fakecri.Config{Teardown: func(_ fakecri.SandboxInfo, n int) error {
		if asked = append(asked, n); n == 0 {
			return errors.New("no")
		}
		return nil
	}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		id, _ := n.sandbox(ctx, "p")
		n.SetNetworkReady(false)
		first := n.stopSandbox(ctx, id)
		n.SetNetworkReady(true)
		if first == nil || n.stopSandbox(ctx, id) != nil || n.stopSandbox(ctx, id) != nil {
			t.Error("only the first was to fail, for there was no network plugin")
		}
	})
	if !slices.Equal(asked, []int{1}) {
		t.Errorf("asked for %v", asked)
	}
}

func TestAStopThatIsCutShortLeavesTheNetworkUp(t *testing.T) {
	bubble(t, fakecri.Config{Latency: map[string]time.Duration{"CNI DEL": time.Minute}}, func(ctx context.Context, n *node) {
		id, _ := n.sandbox(ctx, "p")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := n.stopSandbox(short, id); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("stop: %v", err)
		}
		time.Sleep(time.Hour)
		n.is("after a stop that was cut short", fakecri.NotReady, true, true)
	})
}

func TestASandboxThatDiesKeepsItsNetwork(t *testing.T) {
	bubble(t, fakecri.Config{Images: []string{img}}, func(ctx context.Context, n *node) {
		id, pc := n.sandbox(ctx, "p")
		n.start(ctx, n.container(ctx, id, pc, "c", img, 0))
		if err := n.KillPause(id); err != nil {
			t.Fatal(err)
		}
		n.is("after the death of its process", fakecri.NotReady, true, true)
		if c := n.Snapshot().Containers[0]; c.State != fakecri.Running {
			t.Errorf("its container is %s", c.State)
		}
		if err := n.KillPause(id); err == nil {
			t.Error("it died twice")
		}
		n.Reboot()
		n.is("after a restart of the machine", fakecri.NotReady, true, false)
		n.Wipe()
		if last := n.History()[len(n.History())-2]; last.Kind != fakecri.KindNetwork || last.To != fakecri.Down {
			t.Errorf("after all was forgotten: %+v", last)
		}
	})
}

func TestAnImageCanBeLost(t *testing.T) {
	bubble(t, fakecri.Config{Images: []string{img}}, func(ctx context.Context, n *node) {
		id, pc := n.sandbox(ctx, "p")
		if !n.LoseImage(img) || n.LoseImage(img) {
			t.Error("it was to be lost once")
		}
		_, err := n.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: id, SandboxConfig: pc, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: img},
		}})
		if status.Code(err) != codes.NotFound {
			t.Errorf("create: %v", err)
		}
	})
}
