package contract_test

import (
	"os"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver/contract"
	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/realtest"
)

func TestKubeAPIServerKeepsTheContract(t *testing.T) {
	ctx := realtest.Begin(t, "needs root, a built control plane and minutes", 15*time.Minute)
	c, err := cluster.Start(ctx, cluster.Config{Instance: realtest.Instance(t), Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	for _, story := range contract.Cases() {
		t.Run(story.Name, func(t *testing.T) { story.Run(t, c.Client, "default") })
	}
}
