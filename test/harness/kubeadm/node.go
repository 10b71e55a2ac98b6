package kubeadm

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/containerd"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/space"
	"github.com/polylet/polylet/test/harness/stack"
	"github.com/polylet/polylet/test/harness/units"
)

// Node is a machine with a runtime and an agent that kubeadm may start.
type Node struct {
	Name string
	// Address is the machine's.
	Address  string
	Instance *instance.Instance
	Space    *space.Space
	Runtime  *containerd.Containerd
	// Kubelet is the agent's unit.
	Kubelet *units.Unit

	cluster *Cluster
	units   *units.Units
}

// unit is what kubeadm's packages have in the unit kubelet.service: its files of
// the environment, then the agent with what they say.
const unit = `for file in /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet; do
	if [ -f $file ]; then . $file; fi
done
exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
	--config=/var/lib/kubelet/config.yaml ${KUBELET_KUBEADM_ARGS:-} ${KUBELET_EXTRA_ARGS:-}
`

// Add makes a machine with a running runtime and a stopped agent.
func (c *Cluster) Add(ctx context.Context, name string) (*Node, error) {
	i, err := instance.New()
	if err != nil {
		return nil, err
	}
	n := &Node{Name: name, Instance: i, cluster: c}
	c.Nodes = append(c.Nodes, n)
	n.Space, err = space.Start(ctx, space.Config{
		Instance: i, Name: name, LAN: c.lan, Number: len(c.Nodes) + 1,
		Overlaid: []string{"/etc", "/var/lib", "/var/log", "/usr/libexec"},
		Private:  []string{"/etc/kubernetes", "/var/lib/kubelet", "/var/lib/etcd", "/var/lib/cni", "/var/log/pods", "/var/log/containers"},
	})
	if err != nil {
		return nil, err
	}
	n.Address = n.Space.Address
	if err := n.link(); err != nil {
		return nil, err
	}
	n.Runtime, err = containerd.Start(ctx, containerd.Config{
		Instance: i, Registry: c.near, Space: n.Space, NoNetwork: true, PauseImage: registry.LocalName + "/" + PauseName, Progress: c.cfg.Progress,
	})
	if err != nil {
		return nil, err
	}
	return n, n.makeUnit(ctx)
}

// link puts the programs on the machine's path.
func (n *Node) link() error {
	for name, program := range map[string]string{
		"kubelet": n.cluster.agent, "kubeadm": n.cluster.binaries["kubeadm"], "kubectl": n.cluster.binaries["kubectl"], "systemctl": n.cluster.binaries["systemctl"],
	} {
		if err := os.Symlink(program, filepath.Join(space.Programs(n.Instance), name)); err != nil {
			return fmt.Errorf("put %s on node %s: %w", name, n.Name, err)
		}
	}
	return nil
}

func (n *Node) socket() string { return n.Instance.Path("units.sock") }

func (n *Node) makeUnit(ctx context.Context) error {
	if n.cluster.cfg.Agent == stack.Kubelet {
		if err := n.Instance.MakeCgroups(); err != nil {
			return err
		}
	} else if _, err := n.Space.Shell(ctx, "mkdir -p /etc/default; echo KUBELET_EXTRA_ARGS=--leave-kernel-settings > /etc/default/kubelet"); err != nil {
		return err // the kernel is the machine's
	}
	n.Kubelet = &units.Unit{Process: process.New(process.Config{
		Name: "kubelet of " + n.Name, Prefix: n.Space.Prefix(), Path: "/bin/sh", Args: []string{"-c", unit}, Env: n.Space.Environment(),
		LogFile: n.Instance.Path("kubelet.log"), StopWithin: 20 * time.Second,
	})}
	var err error
	n.units, err = units.Serve(n.socket(), map[string]*units.Unit{"kubelet": n.Kubelet})
	return err
}

// File is where the machine has a file of the node's that is below one of its
// private directories.
func (n *Node) File(dir string, parts ...string) string {
	return filepath.Join(append([]string{n.Space.Path(dir)}, parts...)...)
}

// Command runs a program on the node, where systemctl is about its units.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return n.Space.Command(ctx, "env", append([]string{units.Variable + "=" + n.socket(), name}, args...)...)
}

// Kubeadm runs kubeadm on the node; what it prints is an error's text too.
func (n *Node) Kubeadm(ctx context.Context, args ...string) (string, error) {
	log, err := os.OpenFile(n.Instance.Path("kubeadm.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", fmt.Errorf("open the log of kubeadm: %w", err)
	}
	defer log.Close()
	fmt.Fprintf(log, "# kubeadm %s\n", strings.Join(args, " "))
	var out bytes.Buffer
	cmd := n.Command(ctx, "kubeadm", args...)
	cmd.Stdout = io.MultiWriter(&out, log)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubeadm %s on node %s: %w\n%s", strings.Join(args, " "), n.Name, err, out.String())
	}
	return out.String(), nil
}

// remove ends everything of the node.
func (n *Node) remove() error {
	if n.units != nil {
		n.units.Close()
	}
	if n.Runtime != nil {
		n.Runtime.Close()
		n.Runtime.Stop()
	}
	if n.Space != nil {
		n.Space.Stop()
	}
	return n.Instance.Remove()
}

// Running are the names of the containers that run on the node; only those of the
// names, when any are given.
func (n *Node) Running(ctx context.Context, names ...string) ([]string, error) {
	list, err := n.Runtime.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	})
	if err != nil {
		return nil, fmt.Errorf("list the containers of node %s: %w", n.Name, err)
	}
	var found []string
	for _, c := range list.Containers {
		if len(names) == 0 || slices.Contains(names, c.Metadata.GetName()) {
			found = append(found, c.Metadata.GetName())
		}
	}
	return found, nil
}

// Serving is the certificate that the server at a port of the node shows.
func (n *Node) Serving(ctx context.Context, port string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(n.Address, port))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// Enter is a command line for a person: a shell on the node.
func (n *Node) Enter() string {
	words := slices.Concat(n.Space.Prefix(), []string{"env"}, n.Space.Environment(), []string{units.Variable + "=" + n.socket(), "bash"})
	return strings.Join(words, " ")
}
