package containerd

import (
	"fmt"
	"os"

	"github.com/polylet/polylet/test/harness/instance"
)

// pluginDir is where Debian's containernetworking-plugins puts them.
const pluginDir = "/usr/lib/cni"

// config2 is the configuration of containerd 2.x. NRI and CDI listen at paths
// that all containerds of a machine share, so they are off or moved.
func config2(cfg Config) string {
	i := cfg.Instance
	return fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q

[grpc]
  address = %[3]q
[ttrpc]
  address = %[4]q
[debug]
  level = "info"
[cgroup]
  path = %[5]q

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[6]q
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = %[7]q

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  enable_cdi = false
  cdi_spec_dirs = [%[8]q]
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = %[12]q
        BinaryName = %[13]q
    # The handler that the upstream suite's RuntimeClass tests ask for.
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler.options]
        SystemdCgroup = false
        Root = %[12]q
        BinaryName = %[13]q
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[9]q, %[14]q]
    conf_dir = %[10]q

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.internal.v1.opt']
  path = %[11]q
`, i.Path("root"), i.Path("state"), i.Path("containerd.sock"), i.Path("containerd.ttrpc"), i.CgroupRoot()+"/runtime",
		cfg.PauseImage, i.Path("hosts"), i.Path("cdi"), pluginDir, i.Path("cni"), i.Path("opt"), i.Path("runc"), cfg.Runc, PluginDir(i))
}

// PluginDir is where an instance may have network plugins of its own, for a
// containerd 2.x.
func PluginDir(i *instance.Instance) string { return i.Path("cni-plugins") }

// config1 is the configuration of Debian's containerd 1.6.
func config1(cfg Config) string {
	i := cfg.Instance
	return fmt.Sprintf(`version = 2
root = %[1]q
state = %[2]q

[grpc]
  address = %[3]q
[ttrpc]
  address = %[4]q
[debug]
  level = "info"
[cgroup]
  path = %[5]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[6]q
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %[7]q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        Root = %[11]q
        BinaryName = %[12]q
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[8]q
    conf_dir = %[9]q

[plugins."io.containerd.internal.v1.opt"]
  path = %[10]q
`, i.Path("root"), i.Path("state"), i.Path("containerd.sock"), i.Path("containerd.ttrpc"), i.CgroupRoot()+"/runtime",
		cfg.PauseImage, i.Path("hosts"), pluginDir, i.Path("cni"), i.Path("opt"), i.Path("runc"), cfg.Runc)
}

// WriteNetwork writes what a network add-on would: the pods' network, with the
// bridge's address.
func WriteNetwork(i *instance.Instance, cidr, gateway string) error {
	fresh := i.Path("cni", ".fresh")
	if err := os.WriteFile(fresh, []byte(network(i, cidr, gateway)), 0o644); err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	return os.Rename(fresh, i.Path("cni", "10-polylet.conflist"))
}

// network is the pods' network: a bridge of the instance's own. The bridge gets
// the gateway's address with isGateway; the default route is written out, and
// isDefaultGateway would add it a second time and fail.
func network(i *instance.Instance, cidr, gateway string) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": %q,
  "plugins": [
    {
      "type": "bridge",
      "bridge": %q,
      "isGateway": true,
      "ipMasq": false,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "dataDir": %q,
        "ranges": [[{"subnet": %q, "gateway": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}
  ]
}
`, i.Network(), i.Bridge(), i.Path("ipam"), cidr, gateway)
}
