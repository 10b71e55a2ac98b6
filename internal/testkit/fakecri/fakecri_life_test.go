package fakecri_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestATestEndsProcessesSandboxesAndTheMachine(t *testing.T) {
	bubble(t, fakecri.Config{Images: []string{img}}, func(ctx context.Context, n *node) {
		sb, pc := n.sandbox(ctx, "p")
		var ids []string
		for _, name := range []string{"oom", "orphan"} {
			id := n.container(ctx, sb, pc, name, img, 0)
			n.start(ctx, id)
			ids = append(ids, id)
		}
		if err := n.Exit(ids[0], 137, "OOMKilled"); err != nil {
			t.Fatal(err)
		}
		if st := n.status(ctx, ids[0]); st.GetReason() != "OOMKilled" || st.GetExitCode() != 137 {
			t.Errorf("after Exit: %v", st)
		}
		if err := n.Exit(ids[0], 0, ""); err == nil {
			t.Error("a process ended twice")
		}
		if err := n.KillSandbox(sb); err != nil {
			t.Fatal(err)
		}
		if st := n.status(ctx, ids[1]); st.GetExitCode() != 137 || n.Snapshot().Sandboxes[0].State != fakecri.NotReady {
			t.Errorf("after KillSandbox: %v, %+v", st, n.Snapshot().Sandboxes)
		}
		sb, pc = n.sandbox(ctx, "q")
		id := n.container(ctx, sb, pc, "c", img, 0)
		n.start(ctx, id)
		n.Reboot()
		synctest.Wait() // a call on the old connection, which is about to end, may fail
		if _, err := n.cri.Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		if st := n.status(ctx, id); st.GetExitCode() != 255 || st.GetReason() != "Unknown" || n.Snapshot().Sandboxes[1].State != fakecri.NotReady {
			t.Errorf("after Reboot: %v", st)
		}
		n.Wipe()
		synctest.Wait()
		if s := n.Snapshot(); len(s.Sandboxes)+len(s.Containers) != 0 || len(s.Images) == 0 {
			t.Errorf("after Wipe: %+v", s)
		}
	})
}

func TestASandboxNeedsTheNetworkUnlessItUsesTheHosts(t *testing.T) {
	bubble(t, fakecri.Config{}, func(ctx context.Context, n *node) {
		n.SetNetworkReady(false)
		cfg := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p"}}
		run := func() error {
			_, err := n.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: cfg})
			return err
		}
		if err := run(); status.Code(err) != codes.Unknown {
			t.Errorf("without a network: %v", err)
		}
		n.SetNetworkReady(true)
		if err := run(); err != nil {
			t.Errorf("with a network, under the name that failed before: %v", err)
		}
		n.SetNetworkReady(false)
		cfg = &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "host"},
			Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
			}},
		}
		if err := run(); err != nil {
			t.Errorf("on the host's network: %v", err)
		}
	})
}

func TestACallWhoseCallerGoesWhileItWorksLeavesNothing(t *testing.T) {
	cfg := fakecri.Config{Latency: map[string]time.Duration{"RunPodSandbox": 10 * time.Second}}
	bubble(t, cfg, func(ctx context.Context, n *node) {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		req := &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p"}}}
		if _, err := n.cri.RunPodSandbox(short, req); status.Code(err) != codes.DeadlineExceeded {
			t.Fatalf("got %v", err)
		}
		time.Sleep(time.Minute)
		if got := n.Snapshot().Sandboxes; len(got) != 0 {
			t.Errorf("left %+v", got)
		}
		if _, err := n.cri.RunPodSandbox(ctx, req); err != nil {
			t.Errorf("the name is still taken: %v", err)
		}
	})
}

func TestARealSocketServesAndGoesAway(t *testing.T) {
	rt := fakecri.New(fakecri.Config{})
	defer rt.Close()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	if err := rt.ListenUnix(socket); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	if v, err := client.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil || v.GetRuntimeName() != "containerd" {
		t.Fatalf("%v, %v", v, err)
	}
	rt.SetDown(true)
	if _, err := client.Version(t.Context(), &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("while down: %v", err)
	}
	rt.SetDown(false)
	if _, err := client.Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("after it came back: %v", err)
	}
}
