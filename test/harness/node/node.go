// Package node runs polylet for a test: its five processes under `polylet run`
// or each by itself, with every directory, port and cgroup of an instance's own.
// It must never use a path or a port that another node could use.
package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/space"
)

// Names of the five processes, in an order in which they can be started.
const (
	Podsync    = service.Podsync
	Probes     = service.Probes
	Stats      = service.Stats
	Nodestatus = service.Nodestatus
	Gateway    = service.Gateway
)

// Services lists the five.
func Services() []string { return service.All() }

// Config says how to run the node.
type Config struct {
	Instance *instance.Instance
	// Binary is polylet.
	Binary string
	// Name is the node's name.
	Name string
	// RuntimeEndpoint is the CRI socket with its scheme.
	RuntimeEndpoint string
	// Cluster is nil for a standalone node.
	Cluster *cluster.Cluster
	// Space is where the node runs; nil is the machine itself.
	Space *space.Space
	// Bootstrap is a bootstrap kubeconfig: the node gets its certificate and its
	// kubeconfig by itself; empty gives it both.
	Bootstrap string
	// Kubelet says that Binary is the upstream kubelet, run with the same
	// configuration, to compare with.
	Kubelet bool
	// Split starts each process by itself instead of `polylet run`.
	Split bool
	// ServeOn is the address of the node's two API servers; empty is the node's
	// own, which the apiserver needs.
	ServeOn string
	// Overrides replaces top-level fields of the KubeletConfiguration; nil
	// values remove a field.
	Overrides map[string]any
	// Flags are further flags for every process.
	Flags []string
	// PageAddress is host:port of the page for people; empty serves none.
	PageAddress string
	// Port, ReadOnlyPort and HealthzPort are free ones when zero.
	Port, ReadOnlyPort, HealthzPort int
}

// Node is a configured node.
type Node struct {
	// Processes holds one process per service when split, or "run", or "kubelet".
	Processes map[string]*process.Process
	// Address is the node's address; ReadOnlyURL, HealthzURL and URL are its
	// three servers.
	Address, URL, ReadOnlyURL, HealthzURL string
	// ConfigFile, Kubeconfig, SocketDir, RootDir, PodLogs and StaticPods are
	// paths. Kubeconfig is empty in standalone mode.
	ConfigFile, Kubeconfig, SocketDir, RootDir, PodLogs, StaticPods string

	cfg Config
}

// New writes the node's configuration and starts nothing.
func New(cfg Config) (*Node, error) {
	i := cfg.Instance
	n := &Node{
		cfg: cfg, Processes: map[string]*process.Process{}, Address: i.PodGateway(),
		ConfigFile: i.Path("node", "config.yaml"), SocketDir: i.Path("sock"), RootDir: i.Path("kubelet"),
		PodLogs: i.Path("pod-logs"), StaticPods: i.Path("manifests"),
	}
	for _, dir := range []string{"node", "sock", "kubelet", "pod-logs", "manifests", "pki"} {
		if _, err := i.Mkdir(dir); err != nil {
			return nil, err
		}
	}
	if err := i.AddBridge(); err != nil {
		return nil, err
	}
	if err := n.choosePorts(); err != nil {
		return nil, err
	}
	if cfg.Bootstrap != "" {
		n.Kubeconfig = i.Path("node", "kubelet.conf")
	} else if cfg.Cluster != nil {
		var err error
		if n.Kubeconfig, err = cfg.Cluster.NodeKubeconfig(cfg.Name); err != nil {
			return nil, err
		}
	}
	if err := n.writeConfig(); err != nil {
		return nil, err
	}
	n.makeProcesses()
	return n, nil
}

// Start starts every process and waits until the node says that it is healthy.
func (n *Node) Start(ctx context.Context) error {
	for _, name := range n.order() {
		if err := n.Processes[name].Launch(); err != nil {
			n.Stop()
			return err
		}
	}
	if err := n.Processes[n.front()].WaitReady(ctx); err != nil {
		err = fmt.Errorf("%w%s", err, n.otherLogs())
		n.Stop()
		return err
	}
	return nil
}

// Stop stops every process in the reverse order. Pods keep running.
func (n *Node) Stop() {
	names := n.order()
	for i := len(names) - 1; i >= 0; i-- {
		n.Processes[names[i]].Stop()
	}
}

// Logs returns the last lines of every process's log.
func (n *Node) Logs(lines int) string {
	var text string
	for _, name := range n.order() {
		text += fmt.Sprintf("\n--- %s (%s)\n%s", name, n.Processes[name].LogFile(), process.Tail(n.Processes[name].LogFile(), lines))
	}
	return text
}

// Flags are the flags that every process gets.
func (n *Node) Flags() []string {
	flags := []string{
		"--config=" + n.ConfigFile, "--root-dir=" + n.RootDir, "--cert-dir=" + n.cfg.Instance.Path("pki"),
		"--hostname-override=" + n.cfg.Name, "--node-ip=" + n.Address,
	}
	if !n.cfg.Kubelet {
		flags = append(flags, "--socket-dir="+n.SocketDir, "--node-page-address="+n.cfg.PageAddress, "--leave-kernel-settings")
	}
	if n.Kubeconfig != "" {
		flags = append(flags, "--kubeconfig="+n.Kubeconfig)
	}
	if n.cfg.Bootstrap != "" {
		flags = append(flags, "--bootstrap-kubeconfig="+n.cfg.Bootstrap)
	}
	return append(flags, n.cfg.Flags...)
}

// Healthy asks the node's healthz.
func (n *Node) Healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.HealthzURL+"/healthz", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return fmt.Errorf("%s/healthz answers %s: %s", n.HealthzURL, res.Status, body)
	}
	return nil
}

func (n *Node) order() []string {
	switch {
	case n.cfg.Kubelet:
		return []string{"kubelet"}
	case n.cfg.Split:
		return Services()
	}
	return []string{"run"}
}

// front is the process whose readiness is the node's.
func (n *Node) front() string {
	if n.cfg.Split {
		return Gateway
	}
	return n.order()[0]
}

func (n *Node) otherLogs() string {
	if !n.cfg.Split {
		return ""
	}
	return "\nthe other processes:" + n.Logs(15)
}

func (n *Node) makeProcesses() {
	var prefix []string
	if n.cfg.Space != nil {
		prefix = n.cfg.Space.Prefix()
	}
	for _, name := range n.order() {
		args := n.Flags()
		if !n.cfg.Kubelet {
			args = append([]string{name}, args...)
		}
		n.Processes[name] = process.New(process.Config{
			Name: "polylet " + name, Path: n.cfg.Binary, Args: args, Prefix: prefix,
			LogFile: n.cfg.Instance.Path("node", name+".log"),
			Ready:   n.Healthy, ReadyWithin: time.Minute, StopWithin: 20 * time.Second,
		})
	}
}

func (n *Node) choosePorts() error {
	for _, p := range []*int{&n.cfg.Port, &n.cfg.ReadOnlyPort, &n.cfg.HealthzPort} {
		if *p != 0 {
			continue
		}
		var err error
		if *p, err = cluster.FreePort(); err != nil {
			return err
		}
	}
	if n.cfg.ServeOn == "" {
		n.cfg.ServeOn = n.Address
	}
	n.URL = "https://" + net.JoinHostPort(n.cfg.ServeOn, strconv.Itoa(n.cfg.Port))
	n.ReadOnlyURL = "http://" + net.JoinHostPort(n.cfg.ServeOn, strconv.Itoa(n.cfg.ReadOnlyPort))
	n.HealthzURL = "http://" + net.JoinHostPort(n.healthzAddress(), strconv.Itoa(n.cfg.HealthzPort))
	return nil
}

// healthzAddress is loopback, unless that is another machine's.
func (n *Node) healthzAddress() string {
	if n.cfg.Space != nil {
		return n.Address
	}
	return "127.0.0.1"
}

func (n *Node) writeConfig() error {
	fields := n.configuration()
	for name, value := range n.cfg.Overrides {
		if value == nil {
			delete(fields, name)
			continue
		}
		fields[name] = value
	}
	data, err := yaml.Marshal(fields)
	if err != nil {
		return fmt.Errorf("write the node's configuration: %w", err)
	}
	if err := os.WriteFile(n.ConfigFile, data, 0o644); err != nil {
		return fmt.Errorf("write the node's configuration: %w", err)
	}
	return nil
}

// AddStaticPod puts a manifest into the static-pod directory as one event.
func (n *Node) AddStaticPod(file, manifest string) error {
	fresh := n.cfg.Instance.Path("node", file)
	if err := os.WriteFile(fresh, []byte(manifest), 0o644); err != nil {
		return fmt.Errorf("add static pod %s: %w", file, err)
	}
	return os.Rename(fresh, filepath.Join(n.StaticPods, file))
}
