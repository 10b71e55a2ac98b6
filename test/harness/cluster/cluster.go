// Package cluster runs a real control plane on loopback: etcd, kube-apiserver
// and, when asked for, kube-controller-manager and kube-scheduler, with keys of
// its own. It must never listen on an address that is neither loopback nor the
// instance's, or use a cluster that it did not start.
package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
)

// requestWithin bounds the cluster's own calls to its apiserver.
const requestWithin = 30 * time.Second

// namespaceWithin bounds the wait for what the controller manager makes first.
const namespaceWithin = 2 * time.Minute

// Config says what to run.
type Config struct {
	// Instance owns the directory and the services' network.
	Instance *instance.Instance
	// Controllers starts kube-controller-manager and kube-scheduler too.
	// Without them the cluster makes the default service account itself.
	Controllers bool
	// Address of the apiserver; empty is loopback. Nodes with a network of their own
	// need one that is the instance's.
	Address string
	// Port of the apiserver; zero takes a free one.
	Port int
	// Audit has the apiserver write down every request of nodes, to AuditLog.
	Audit bool
	// SigningDuration is how long certificates are good for that the controller manager
	// signs; zero is its own default.
	SigningDuration time.Duration
	// VerifyNodes has the apiserver ask nodes only whose serving certificate its
	// authority has signed.
	VerifyNodes bool
	// Gates are feature gates of the apiserver that are turned on, and APIs what it serves
	// beside its own choice, as in --runtime-config.
	Gates, APIs []string
	// Progress receives lines about builds and starts.
	Progress io.Writer
}

// Cluster is a running control plane.
type Cluster struct {
	// Etcd, APIServer, ControllerManager and Scheduler can be stopped, killed
	// and started again; the last two are nil without Config.Controllers.
	Etcd, APIServer, ControllerManager, Scheduler *process.Process
	// Server is the apiserver's URL.
	Server string
	// AdminKubeconfig is the path of a self-contained kubeconfig.
	AdminKubeconfig string
	// AuditLog is the path of the audit events of nodes, one JSON object per
	// line; empty without Config.Audit.
	AuditLog string
	// Client and Rest act as the cluster's administrator.
	Client kubernetes.Interface
	Rest   *rest.Config
	// Kubectl is the path of kubectl.
	Kubectl string

	cfg  Config
	keys *keys
}

// keys are the files that the parts of the control plane share.
type keys struct {
	ca, frontProxy                      *authority
	serving, frontProxyClient, kubelets pair
	serviceAccounts                     pair
}

// Start starts the control plane and returns when it serves and a pod can be
// created in the default namespace.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	builder, err := programs.New(cfg.Progress)
	if err != nil {
		return nil, err
	}
	binaries, err := builder.Binaries(ctx, programs.ControlPlane()...)
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, Kubectl: binaries["kubectl"]}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if err := c.launch(ctx, binaries); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Stop stops everything in the reverse order of the start.
func (c *Cluster) Stop() { c.each((*process.Process).Stop) }

// Kill is Stop for a cluster whose data nobody wants: nothing takes leave.
func (c *Cluster) Kill() { c.each((*process.Process).Kill) }

func (c *Cluster) each(do func(*process.Process)) {
	for _, p := range []*process.Process{c.Scheduler, c.ControllerManager, c.APIServer, c.Etcd} {
		if p != nil {
			do(p)
		}
	}
}

// NodeKubeconfig issues a client certificate for system:node:NAME and returns
// the path of a kubeconfig with it.
func (c *Cluster) NodeKubeconfig(node string) (string, error) {
	client, err := c.keys.ca.issue("node-"+node, subject{name: "system:node:" + node, group: []string{"system:nodes"}})
	if err != nil {
		return "", err
	}
	path := c.cfg.Instance.Path("cluster", "node-"+node+".kubeconfig")
	return path, writeKubeconfig(path, c.Server, c.keys.ca.file, client, false)
}

// ClientCAFile is the authority that the node's clients are signed by, for
// authentication.x509.clientCAFile.
func (c *Cluster) ClientCAFile() string { return c.keys.ca.file }

func (c *Cluster) prepare() error {
	port := c.cfg.Port
	if port == 0 {
		var err error
		if port, err = FreePort(); err != nil {
			return err
		}
	}
	if c.cfg.Address == "" {
		c.cfg.Address = "127.0.0.1"
	}
	c.Server = "https://" + net.JoinHostPort(c.cfg.Address, strconv.Itoa(port))
	dir, err := c.cfg.Instance.Mkdir("cluster")
	if err != nil {
		return err
	}
	if c.keys, err = newKeys(dir, c.cfg.Instance.ServiceCIDR(), c.cfg.Address); err != nil {
		return err
	}
	admin, err := c.keys.ca.issue("admin", subject{name: "polylet-admin", group: []string{"system:masters"}})
	if err != nil {
		return err
	}
	c.AdminKubeconfig = c.cfg.Instance.Path("cluster", "admin.kubeconfig")
	if err := writeKubeconfig(c.AdminKubeconfig, c.Server, c.keys.ca.file, admin, true); err != nil {
		return err
	}
	if c.Rest, err = clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig); err != nil {
		return fmt.Errorf("read back %s: %w", c.AdminKubeconfig, err)
	}
	c.Rest.QPS, c.Rest.Burst = 200, 400
	if c.Client, err = kubernetes.NewForConfig(c.Rest); err != nil {
		return fmt.Errorf("make a client of %s: %w", c.Server, err)
	}
	return nil
}

func newKeys(dir, serviceCIDR, address string) (*keys, error) {
	prefix, err := netip.ParsePrefix(serviceCIDR)
	if err != nil {
		return nil, fmt.Errorf("services' network: %w", err)
	}
	first := net.IP(prefix.Addr().Next().AsSlice())
	k := &keys{}
	if k.ca, err = openAuthority(dir, "ca"); err != nil {
		return nil, err
	}
	if k.frontProxy, err = openAuthority(dir, "front-proxy-ca"); err != nil {
		return nil, err
	}
	k.serving, err = k.ca.issue("apiserver", subject{
		name: "kube-apiserver", ips: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(address), first},
		dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
	})
	if err != nil {
		return nil, err
	}
	if k.kubelets, err = k.ca.issue("apiserver-kubelet-client", subject{name: "kube-apiserver-kubelet-client", group: []string{"polylet:kubelet-clients"}}); err != nil {
		return nil, err
	}
	if k.frontProxyClient, err = k.frontProxy.issue("front-proxy-client", subject{name: "front-proxy-client"}); err != nil {
		return nil, err
	}
	k.serviceAccounts, err = openServiceAccountKey(dir)
	return k, err
}

// given are the ports that FreePort has returned.
var given struct {
	sync.Mutex
	ports map[int]bool
}

// FreePort returns a TCP port of loopback that was free a moment ago. It returns
// none twice: whoever asks for several opens the first after the last was found.
func FreePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		// Held till the function ends: the kernel then gives another one.
		defer l.Close()
		if !given.ports[port] {
			if given.ports == nil {
				given.ports = map[int]bool{}
			}
			given.ports[port] = true
			return port, nil
		}
	}
}
