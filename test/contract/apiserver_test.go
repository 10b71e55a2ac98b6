package contract_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver/contract"
	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
)

func TestKubeAPIServerKeepsTheContract(t *testing.T) {
	if os.Getenv("POLYLET_NODE_TESTS") == "" {
		t.Skip("needs root, a built control plane and minutes; set POLYLET_NODE_TESTS=1 to run it")
	}
	if err := install.Check(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	inst, err := instance.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.Remove(); err != nil {
			t.Error(err)
		}
	})
	c, err := cluster.Start(ctx, cluster.Config{Instance: inst, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	for _, story := range contract.Cases() {
		t.Run(story.Name, func(t *testing.T) { story.Run(t, c.Client, "default") })
	}
}
