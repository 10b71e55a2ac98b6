package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/node"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/services"
	"github.com/polylet/polylet/test/harness/stack"
	"github.com/polylet/polylet/test/harness/storage"
)

const (
	nodeName = "polylet-e2e"
	// hostPathData is a directory that the suite's manifest of csi-hostpath has made on
	// the machine. Nothing is ever in it: the stand-in keeps its volumes elsewhere.
	hostPathData = "/var/lib/csi-hostpath-data"
)

// machine is the cluster that the suite runs against, and its first node.
type machine struct {
	*stack.Stack
	// others are the further nodes.
	others   []*stack.Stack
	services *services.Services
	// storage is the cluster's part in tests of CSI drivers; nil without.
	storage *storage.Storage
	agent   string
	// tested names the agent, as of when it was built.
	tested   string
	binaries map[string]string
	// sidecars are the programs of the suite's CSI drivers, and the snapshot controller,
	// which a run must not build while its node waits; nil without.
	sidecars map[string]string
}

// newMachine builds what is missing and starts everything.
func newMachine(ctx context.Context, o options) (*machine, error) {
	if err := install.Packages(ctx, os.Stdout); err != nil {
		return nil, err
	}
	if err := install.Others(ctx, os.Stdout, images.SuitePackages()); err != nil {
		return nil, err
	}
	if err := install.SharedRoot(); err != nil {
		say("going on without mount propagation: %v", err)
	}
	m := &machine{}
	if err := m.build(ctx, o); err != nil {
		return nil, err
	}
	i, err := instance.New()
	if err != nil {
		return nil, err
	}
	m.Stack = stack.New(i, os.Stdout)
	if err := m.start(ctx, o); err != nil {
		m.keepLogs(o.artifacts)
		m.stop()
		return nil, fmt.Errorf("%w; logs in %s", err, o.artifacts)
	}
	return m, nil
}

func (m *machine) build(ctx context.Context, o options) error {
	builder, err := programs.New(os.Stdout)
	if err != nil {
		return err
	}
	if m.binaries, err = builder.Binaries(ctx, programs.Conformance()...); err != nil {
		return err
	}
	if o.csi {
		if m.sidecars, err = builder.Binaries(ctx, append(programs.CSISidecars(), programs.SnapshotController())...); err != nil {
			return err
		}
	}
	m.tested = describe(ctx, o)
	if o.agent == "kubelet" {
		m.agent, err = builder.Binary(ctx, programs.Kubelet())
	} else {
		m.agent, err = builder.Polylet(ctx)
	}
	return err
}

func (m *machine) start(ctx context.Context, o options) error {
	say("building the images …")
	if err := m.StartRuntime(ctx, containerd.Config{}, m.pushSuite); err != nil {
		return err
	}
	start := m.StartCluster
	if o.nodes > 1 {
		start = m.StartSharedCluster
	}
	if err := start(ctx, cluster.Config{Controllers: true, Gates: o.gated()}); err != nil {
		return err
	}
	overrides := o.overrides()
	if o.services {
		maps.Copy(overrides, services.Overrides(m.Instance))
		var err error
		m.services, err = services.Start(ctx, services.Config{Instance: m.Instance, Cluster: m.Cluster, Node: nodeName, Progress: os.Stdout})
		if err != nil {
			return err
		}
	}
	if err := m.MakeNode(ctx, o.agent, node.Config{Binary: m.agent, Name: nodeName, Overrides: overrides}); err != nil {
		return err
	}
	say("starting %s …", o.agent)
	if err := m.Node.Start(ctx); err != nil {
		return err
	}
	if err := m.WaitForNode(ctx, nodeName); err != nil {
		return err
	}
	if o.csi {
		var err error
		m.storage, err = storage.Start(ctx, storage.Config{
			Instance: m.Instance, Cluster: m.Cluster, Node: nodeName, RootDir: m.Node.RootDir, Progress: os.Stdout,
		})
		if err != nil {
			return err
		}
	}
	for number := 2; number <= o.nodes; number++ {
		if err := m.addNode(ctx, o, number); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) addNode(ctx context.Context, o options, number int) error {
	name := fmt.Sprintf("%s-%d", nodeName, number)
	say("starting %s on node %s …", o.agent, name)
	i, err := instance.New()
	if err != nil {
		return err
	}
	other, err := m.Second(ctx, i, name, number, containerd.Config{})
	if err != nil {
		return errors.Join(err, i.Remove())
	}
	m.others = append(m.others, other)
	if err := other.MakeNode(ctx, o.agent, node.Config{Binary: m.agent, Name: name, Overrides: o.overrides()}); err != nil {
		return err
	}
	if err := other.Node.Start(ctx); err != nil {
		return err
	}
	return m.WaitForNode(ctx, name)
}

func (m *machine) pushSuite(ctx context.Context, r *registry.Registry, dir string) error {
	if m.sidecars != nil {
		if err := images.PushCSI(ctx, r, dir, m.sidecars); err != nil {
			return err
		}
	}
	return images.PushSuite(ctx, r, dir, m.binaries["agnhost"])
}

// describe names the tested program by what it says of itself and by the
// checkout's commit.
func describe(ctx context.Context, o options) string {
	if o.agent == "kubelet" {
		return programs.Kubelet().Name + " " + programs.Kubelet().Version
	}
	return "polylet, " + programs.Checkout(ctx, o.root)
}

// keepLogs copies the logs out of the instance, which is removed.
func (m *machine) keepLogs(dir string) {
	for _, pattern := range []string{"*.log", "node/*.log", "node/config.yaml", "cluster/*.log"} {
		found, err := filepath.Glob(m.Instance.Path(pattern))
		if err != nil {
			continue // a bad pattern, which these are not
		}
		for _, from := range found {
			if err := copyFile(from, filepath.Join(dir, filepath.Base(from))); err != nil {
				say("lost a log: %v", err)
			}
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// stop ends everything and removes what the pods have left: the node first, and
// the pods while the runtime is still there.
func (m *machine) stop() {
	for _, other := range m.others {
		if err := other.Remove(); err != nil {
			say("cleaning up: %v", err)
		}
	}
	if m.Node != nil {
		m.Node.Stop()
	}
	if m.storage != nil {
		m.storage.Stop()
	}
	if m.services != nil {
		if err := m.services.Stop(); err != nil {
			say("cleaning up: %v", err)
		}
	}
	if m.Cluster != nil {
		m.Cluster.Stop()
	}
	if m.Runtime != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Runtime.RemovePods(ctx); err != nil {
			say("removing the pods: %v", err)
		}
	}
	if m.sidecars != nil {
		_ = os.Remove(hostPathData) // Somebody else's has something in it, and stays.
	}
	if err := m.Remove(); err != nil {
		say("cleaning up: %v", err)
	}
}
