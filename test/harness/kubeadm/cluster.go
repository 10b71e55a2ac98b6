// Package kubeadm makes clusters with the real kubeadm, on machines of their own
// (package space) whose agent is polylet under the name kubelet. All that kubeadm
// writes, /etc/kubernetes and /var/lib/kubelet too, is in an instance's directory.
// It must never run kubeadm on the machine itself.
package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/stack"
)

// PodCIDR is the network that kubeadm is told to give nodes parts of for pods.
const PodCIDR = "10.244.0.0/16"

// Config says what to make.
type Config struct {
	// Agent is stack.Polylet or stack.Kubelet.
	Agent string
	// Progress receives lines about builds and starts.
	Progress io.Writer
}

// Cluster is what kubeadm's nodes share.
type Cluster struct {
	// Nodes are the machines in the order of Add.
	Nodes []*Node
	// Client and Rest act as the cluster's administrator, after Init; so does
	// AdminKubeconfig.
	Client          kubernetes.Interface
	Rest            *rest.Config
	AdminKubeconfig string
	// Kubectl is the path of kubectl.
	Kubectl string

	cfg      Config
	lan      *instance.Instance
	images   *registry.Registry
	near     *registry.Registry // the same, where nodes reach it
	binaries map[string]string
	agent    string // program
}

// New builds what is needed and serves the images. It makes no node.
func New(ctx context.Context, cfg Config) (*Cluster, error) {
	c := &Cluster{cfg: cfg}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Remove())
	}
	return c, nil
}

func (c *Cluster) prepare(ctx context.Context) error {
	builder, err := programs.New(c.cfg.Progress)
	if err != nil {
		return err
	}
	if c.binaries, err = builder.Binaries(ctx, programs.KubeadmCluster()...); err != nil {
		return err
	}
	if c.binaries["systemctl"], err = builder.Systemctl(ctx); err != nil {
		return err
	}
	c.Kubectl = c.binaries["kubectl"]
	if c.lan, err = instance.New(); err != nil {
		return err
	}
	s := stack.New(c.lan, c.cfg.Progress)
	if c.agent, err = s.Binary(ctx, c.cfg.Agent); err != nil {
		return err
	}
	fmt.Fprintln(c.cfg.Progress, "building the images …")
	err = s.StartImages(ctx, func(ctx context.Context, r *registry.Registry, dir string) error {
		return images.PushCluster(ctx, r, dir, Images(c.binaries))
	})
	c.images = s.Images
	if err != nil {
		return err
	}
	if err := c.lan.AddLAN(); err != nil {
		return err
	}
	c.near, err = c.images.At(c.lan.LANAddress(1))
	return err
}

// Images are what the images are built from, and what kubeadm 1.36.3 calls them. It
// upgrades no CoreDNS that is newer than the one it brings, so ours goes under that
// one's name.
func Images(binaries map[string]string) images.ClusterPrograms {
	names := map[string]string{"etcd": "etcd:3.6.8-0", "coredns": "coredns:v1.14.2"}
	for _, p := range []programs.Peer{programs.KubeAPIServer(), programs.KubeControllerManager(), programs.KubeScheduler(), programs.KubeProxy()} {
		names[p.Name] = p.Name + ":" + p.Version
	}
	return images.ClusterPrograms{Binaries: binaries, Names: names, Pause: PauseName}
}

// PauseName is the sandbox image's name and tag.
const PauseName = "pause:3.10.2"

// Readopt reads again what kubeadm has written for the administrator.
func (c *Cluster) Readopt(n *Node) error {
	c.AdminKubeconfig = n.File("/etc/kubernetes", "admin.conf")
	var err error
	if c.Rest, err = clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig); err != nil {
		return fmt.Errorf("read what kubeadm wrote for the administrator: %w", err)
	}
	c.Rest.QPS, c.Rest.Burst, c.Rest.Timeout = 200, 400, 30*time.Second
	c.Client, err = kubernetes.NewForConfig(c.Rest)
	return err
}

// Remove ends all nodes and takes away all that was made. It may be called again.
func (c *Cluster) Remove() error {
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.remove())
	}
	c.Nodes = nil
	if c.images != nil {
		errs = append(errs, c.images.Close())
		c.images = nil
	}
	if c.lan != nil {
		errs = append(errs, c.lan.Remove())
		c.lan = nil
	}
	return errors.Join(errs...)
}
