package liveconf

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/schedstat"
	"github.com/polylet/polylet/internal/service"
)

// stillNode runs at once, and well, what it is handed.
type stillNode struct {
	puts     int
	put      *kubeletconfig.Loaded
	restarts []string
}

func (n *stillNode) Put(l *kubeletconfig.Loaded, _ uint64) error { n.puts++; n.put = l; return nil }
func (n *stillNode) Restart(service string) error {
	n.restarts = append(n.restarts, service)
	return nil
}
func (n *stillNode) Change(service string) error { return n.Restart(service) }

func (*stillNode) Processors(string) (schedstat.Times, bool) { return schedstat.Times{}, false }
func (n *stillNode) Say(State)                               {}
func (n *stillNode) Ask(_ context.Context, service string) (Report, error) {
	return Report{Checksum: configslice.Checksum(n.put.Fields(), service)}, nil
}

// FuzzAnEditIsAppliedWholeOrNotAtAll: whatever stands in the file, either nobody is handed
// anything, or all get the whole of it, once, and its owners and no others start again.
func FuzzAnEditIsAppliedWholeOrNotAtAll(f *testing.F) {
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	f.Add(header + "maxPods: 5\nhealthzPort: 7\n")
	f.Add(header + "maxPods: 5\ncgroupDriver: systemd\n")
	f.Add(header + "featureGates: {EnvFiles: false, Nonsense: true}\n")
	f.Add(header + "maxPods: 5\nevictionHard: {memory.available: x}\n")
	f.Add("kind: Pod")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		file := filepath.Join(dir, "k.yaml")
		args := []string{"--config=" + file, "--hostname-override=n"}
		load := func() (*kubeletconfig.Loaded, error) { return kubeletconfig.LoadAgain(args) }
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(header)
		node := &stillNode{}
		c := New(Config{Dir: filepath.Join(dir, "kept"), Args: args, Services: service.ServersFirst(), Load: load, Log: logr.Discard()})
		first, err := load()
		if err != nil {
			t.Fatal(err)
		}
		if node.put, _, err = c.Start(first, nil); err != nil {
			t.Fatal(err)
		}
		c.node = node
		write(text)
		said, err := load()
		c.consider(t.Context(), true)
		var changes []configslice.Change
		if err == nil {
			changes = configslice.Difference(first.Fields(), said.Fields())
		}
		if len(changes) == 0 || configslice.Refusal(changes) != nil {
			if node.puts > 0 || len(node.restarts) > 0 || c.active != first {
				t.Fatalf("%d were handed out and %v started again for %v, %v", node.puts, node.restarts, changes, err)
			}
			return
		}
		owners := configslice.OwnersOf(changes)
		if node.puts != 1 || sumOf(node.put) != sumOf(said) || len(node.restarts) != len(owners) {
			t.Fatalf("handed out %d times, started again %v, owners %v of %v", node.puts, node.restarts, owners, changes)
		}
	})
}
