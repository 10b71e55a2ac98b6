// Package containerd runs a containerd of an instance's own: its root, state,
// socket, network and cgroups are the instance's, and nothing of it is left
// after the instance is removed. It must never touch another containerd.
package containerd

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/instance"
	"github.com/polylet/polylet/test/harness/process"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/registry"
	"github.com/polylet/polylet/test/harness/space"
)

// Version chooses the containerd.
type Version string

const (
	// Built is the 2.x that the peers module pins. It is the default.
	Built Version = "2"
	// Debian is the machine's own, 1.6.
	Debian Version = "debian"
)

// Config says what to run.
type Config struct {
	// Instance owns the directory and the network.
	Instance *instance.Instance
	// Registry answers every image pull.
	Registry *registry.Registry
	// Version is Built when empty.
	Version Version
	// PauseImage is the sandbox image; the registry must have it.
	PauseImage string
	// Runc is the program that runs containers; the machine's runc when empty.
	Runc string
	// Space is where it runs; nil is the machine itself.
	Space *space.Space
	// NoNetwork leaves out the pods' network: the runtime says that it has none until
	// WriteNetwork.
	NoNetwork bool
	// Metrics has a built containerd serve its metrics, at MetricsURL.
	Metrics bool
	// Progress receives lines about builds.
	Progress io.Writer
}

// Containerd is an instance's runtime.
type Containerd struct {
	// Process can be stopped, killed and started again.
	*process.Process
	// Socket is the path of the CRI socket.
	Socket string
	// MetricsURL is empty without Config.Metrics.
	MetricsURL string

	conn      *grpc.ClientConn
	noNetwork bool
}

// Start writes the configuration and starts containerd. It returns when its CRI
// says that runtime and network are ready.
func Start(ctx context.Context, cfg Config) (*Containerd, error) {
	c, err := Prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := c.Process.Start(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Prepare is Start without the start, for tests of a runtime that is not there
// yet.
func Prepare(ctx context.Context, cfg Config) (*Containerd, error) {
	binary, path, err := binaries(ctx, cfg)
	if err != nil {
		return nil, err
	}
	metrics, err := metricsAddress(cfg)
	if err != nil {
		return nil, err
	}
	configFile, err := writeConfig(cfg, metrics)
	if err != nil {
		return nil, err
	}
	socket := cfg.Instance.Path("containerd.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	c := &Containerd{Socket: socket, conn: conn, noNetwork: cfg.NoNetwork}
	var prefix []string
	if cfg.Space != nil {
		prefix = cfg.Space.Prefix()
	}
	if metrics != "" {
		c.MetricsURL = "http://" + metrics + "/v1/metrics"
	}
	c.Process = process.New(process.Config{
		Name: "containerd", Path: binary, Args: []string{"--config", configFile}, Prefix: prefix,
		Env:         []string{"PATH=" + path},
		LogFile:     cfg.Instance.Path("containerd.log"),
		Ready:       c.ready,
		ReadyWithin: time.Minute,
	})
	return c, nil
}

// Endpoint is the socket as --container-runtime-endpoint wants it.
func (c *Containerd) Endpoint() string { return "unix://" + c.Socket }

// Runtime is a client of the CRI's runtime service.
func (c *Containerd) Runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(c.conn)
}

// Images is a client of the CRI's image service.
func (c *Containerd) Images() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(c.conn)
}

// Close closes the clients; it does not stop the process.
func (c *Containerd) Close() { c.conn.Close() }

// RemovePods stops and removes every sandbox over the CRI, the orderly way to
// end before the process is stopped.
func (c *Containerd) RemovePods(ctx context.Context) error {
	list, err := c.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	for _, s := range list.Items {
		if _, err := c.Runtime().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			return fmt.Errorf("stop sandbox %s: %w", s.Id, err)
		}
		if _, err := c.Runtime().RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			return fmt.Errorf("remove sandbox %s: %w", s.Id, err)
		}
	}
	return nil
}

func (c *Containerd) ready(ctx context.Context) error {
	status, err := c.Runtime().Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, condition := range status.GetStatus().GetConditions() {
		// Others are advice, such as containerd 2.4's about cgroup v1.
		needed := condition.Type == runtimeapi.RuntimeReady || condition.Type == runtimeapi.NetworkReady && !c.noNetwork
		if needed && !condition.Status {
			return fmt.Errorf("%s is false: %s: %s", condition.Type, condition.Reason, condition.Message)
		}
	}
	return nil
}

// binaries returns containerd and the PATH under which it finds its own shim
// before any other.
func binaries(ctx context.Context, cfg Config) (binary, path string, err error) {
	const system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if cfg.Version == Debian {
		binary, err := exec.LookPath("containerd")
		if err != nil {
			return "", "", fmt.Errorf("find Debian's containerd: %w; install the package containerd", err)
		}
		return binary, system, nil
	}
	builder, err := programs.New(cfg.Progress)
	if err != nil {
		return "", "", err
	}
	built, err := builder.Binaries(ctx, programs.Containerd(), programs.ContainerdShim())
	if err != nil {
		return "", "", err
	}
	return built["containerd"], filepath.Dir(built["containerd-shim-runc-v2"]) + ":" + system, nil
}

// metricsAddress finds a free port of loopback; empty when no metrics are asked for.
func metricsAddress(cfg Config) (string, error) {
	if !cfg.Metrics {
		return "", nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port for containerd's metrics: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func writeConfig(cfg Config, metrics string) (string, error) {
	inst := cfg.Instance
	for _, dir := range []string{"root", "state", "hosts", "cni", "ipam", "opt", "cdi", "runc"} {
		if _, err := inst.Mkdir(dir); err != nil {
			return "", err
		}
	}
	if err := cfg.Registry.WriteHosts(inst.Path("hosts")); err != nil {
		return "", err
	}
	if !cfg.NoNetwork {
		if err := WriteNetwork(inst, inst.PodCIDR(), inst.PodGateway()); err != nil {
			return "", err
		}
	}
	text := config2(cfg)
	switch {
	case cfg.Version == Debian:
		text = config1(cfg)
	case metrics != "":
		text += fmt.Sprintf("[plugins.'io.containerd.server.v1.metrics']\n  address = %q\n", metrics)
	}
	file := inst.Path("containerd.toml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write containerd's configuration: %w", err)
	}
	return file, nil
}
