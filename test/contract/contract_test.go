// Package contract_test plays the CRI contract of internal/testkit against real runtimes,
// so that what the fake runtime pretends is what containerd does. It must never ask one
// of them for what it does not ask the other.
package contract_test

import (
	"context"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/polylet/polylet/internal/testkit/fakecri/contract"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/realtest"
	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/stack"
)

const (
	other   = registry.LocalName + "/testapp:other"
	missing = registry.LocalName + "/missing:v1"
)

func TestContainerdTwoKeepsTheContract(t *testing.T) { play(t, containerd.Built, false) }

func TestDebiansContainerdKeepsTheContract(t *testing.T) { play(t, containerd.Debian, true) }

func play(t *testing.T, version containerd.Version, old bool) {
	ctx := realtest.Begin(t, "needs root, containerd and minutes", 10*time.Minute)
	inst, c := start(ctx, t, version)
	conn, err := grpc.NewClient(c.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, story := range contract.Cases() {
		t.Run(story.Name, func(t *testing.T) {
			story.Run(t, contract.Target{
				Conn: conn, Image: images.TestApp, Other: other, Missing: missing, LogDir: inst.Path("logs"),
				CgroupParent: inst.CgroupRoot(), Containerd16: old,
			})
		})
	}
	if t.Failed() {
		t.Log(process.Tail(c.LogFile(), 40))
	}
}

// start brings a containerd up that ends, with everything it left, when the test does.
func start(ctx context.Context, t *testing.T, version containerd.Version) (*instance.Instance, *containerd.Containerd) {
	t.Helper()
	inst := realtest.Instance(t)
	s := stack.New(inst, os.Stderr)
	t.Cleanup(s.Stop)
	push := func(ctx context.Context, r *registry.Registry, dir string) error {
		return images.PushTestApp(ctx, r, dir, "testapp:other")
	}
	if err := s.StartRuntime(ctx, containerd.Config{Version: version}, push); err != nil {
		t.Fatal(err)
	}
	return inst, s.Runtime
}
