package stack

import (
	"context"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/space"
)

// sharedAddress is the address of this machine that every node reaches.
func (s *Stack) sharedAddress() string { return s.Instance.LANAddress(1) }

// StartSharedCluster is StartCluster for nodes besides the machine's: the
// apiserver is where they reach it.
func (s *Stack) StartSharedCluster(ctx context.Context, cfg cluster.Config) error {
	if err := s.Instance.AddLAN(); err != nil {
		return err
	}
	cfg.Address = s.sharedAddress()
	return s.StartCluster(ctx, cfg)
}

// Second prepares a further machine for a node of this stack's cluster: an
// instance and namespaces of its own, in which its runtime runs with this stack's
// images. What runs on one reaches what runs on the other, pods included. The
// number is its own on the bridge between nodes, from 2 on.
func (s *Stack) Second(ctx context.Context, i *instance.Instance, name string, number int, cfg containerd.Config) (*Stack, error) {
	second := &Stack{Instance: i, Cluster: s.Cluster, progress: s.progress, lan: s}
	if err := second.bringUp(ctx, name, number, cfg); err != nil {
		second.Stop()
		return nil, err
	}
	return second, nil
}

func (s *Stack) bringUp(ctx context.Context, name string, number int, cfg containerd.Config) error {
	var err error
	s.Space, err = space.Start(ctx, space.Config{
		Instance: s.Instance, Name: name, LAN: s.lan.Instance, Number: number,
		// Where libcni and the node's agent leave notes.
		Overlaid: []string{"/etc", "/var/lib", "/var/log"}, Private: []string{"/var/lib/cni", "/var/log/containers"},
	})
	if err != nil {
		return err
	}
	if s.Images, err = s.lan.Images.At(s.lan.sharedAddress()); err != nil {
		return err
	}
	// The pods of either, each by way of the other's node.
	if err := s.lan.Instance.Route(s.Instance.PodCIDR(), s.Space.Address); err != nil {
		return err
	}
	if err := s.prepareRuntime(ctx, cfg); err != nil {
		return err
	}
	return s.Runtime.Process.Start(ctx)
}
