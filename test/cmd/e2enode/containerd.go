package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	// containerdCgroup is the runtime's own.
	containerdCgroup = "/containerd"
	// containerdAgain is the pause before a containerd that died is started
	// again, as in its own unit file.
	containerdAgain = 5 * time.Second
	// containerdWithin bounds the wait for the first one to be ready.
	containerdWithin = 2 * time.Minute
)

// containerdConfig uses containerd's own paths: the run has them for itself. systemd is
// whether that makes the cgroups.
func containerdConfig(systemd bool) string {
	return strings.ReplaceAll(containerdSettings, "@SYSTEMD@", strconv.FormatBool(systemd))
}

const containerdSettings = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "registry.k8s.io/pause:3.10.1"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "/etc/containerd/certs.d"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/run/cdi"]
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = @SYSTEMD@
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler.options]
        SystemdCgroup = @SYSTEMD@
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/etc/cni/net.d"

[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"
`

// podNetwork has a /24, as the suite's test of leaking addresses supposes.
const podNetwork = `{
  "cniVersion": "1.0.0",
  "name": "e2e-node",
  "plugins": [
    {
      "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "dataDir": "/run/cni-ipam",
        "ranges": [[{"subnet": "10.100.0.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]
}
`

// keepContainerd writes the configuration and keeps a containerd running until
// the context ends. It returns when the first one is ready.
func keepContainerd(ctx context.Context, o order) (*grpc.ClientConn, error) {
	if err := configureContainerd(false); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.Artifacts, "containerd.log"))
	if err != nil {
		return nil, err
	}
	go func() {
		defer log.Close()
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, filepath.Join(o.Bin, "e2enode"), roleEnter, containerdCgroup, o.Containerd, "--config", "/etc/containerd/config.toml")
			cmd.Env = []string{"PATH=" + o.Shims + ":" + systemPath}
			cmd.Stdout, cmd.Stderr = log, log
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			err := cmd.Run()
			if ctx.Err() == nil {
				say("containerd ended (%v); it is started again", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(containerdAgain):
			}
		}
	}()
	return waitContainerd(ctx, log.Name())
}

func configureContainerd(systemd bool) error {
	for path, text := range map[string]string{
		"/etc/containerd/config.toml": containerdConfig(systemd), "/etc/cni/net.d/10-e2e-node.conflist": podNetwork,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func waitContainerd(ctx context.Context, log string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+containerdSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, containerdWithin)
	defer cancel()
	for {
		err := containerdReady(ctx, conn)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("wait for containerd: %w; see %s", err, log)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func containerdReady(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := runtimeapi.NewRuntimeServiceClient(conn).Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return err
	}
	for _, condition := range status.GetStatus().GetConditions() {
		// Others are advice, such as containerd 2.4's about cgroup v1.
		needed := condition.Type == runtimeapi.RuntimeReady || condition.Type == runtimeapi.NetworkReady
		if needed && !condition.Status {
			return fmt.Errorf("%s is false: %s: %s", condition.Type, condition.Reason, condition.Message)
		}
	}
	return nil
}
