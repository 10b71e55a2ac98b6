package vm

import (
	"maps"
	"os"
	"slices"

	"github.com/polylet/polylet/test/harness/kubeadm"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/registry"
)

// address is the machine's, which its initial RAM disk gives it.
const address = "10.0.2.15"

// nodeName is the host's name.
const nodeName = "polylet-vm"

// setUpForKubeadm makes of the machine what kubeadm's guide wants of one, with the
// files of kubeadm's packages, and polylet in the kubelet's place as docs/kubeadm.md
// says. There is no network for pods.
func setUpForKubeadm() error {
	if err := serveImages(); err != nil {
		return err
	}
	if err := writeAll(map[string]string{
		"/etc/containerd/config.toml":             containerdConfig(true, registry.LocalName+"/"+kubeadm.PauseName),
		"/etc/hosts":                              "127.0.0.1 localhost\n" + address + " " + nodeName + "\n",
		"/etc/resolv.conf":                        "nameserver 10.0.2.3\n",
		"/usr/lib/systemd/system/kubelet.service": packagedUnit,
		"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": packagedDropIn,
		initFile: initConfiguration,
	}); err != nil {
		return err
	}
	if err := run("modprobe", "-a", "overlay", "br_netfilter"); err != nil {
		return err
	}
	if err := writeAll(map[string]string{"/proc/sys/net/ipv4/ip_forward": "1", "/proc/sys/net/bridge/bridge-nf-call-iptables": "1"}); err != nil {
		return err
	}
	if err := runAll([][]string{
		{"install", "-m", "0755", payload + "/bin/kubeadm", payload + "/bin/kubectl", "/usr/bin"},
		{"systemctl", "daemon-reload"},
		{"systemctl", "start", "containerd.service"},
	}); err != nil {
		return err
	}
	listened, err := listening()
	if err != nil {
		return err
	}
	listenedBefore = slices.Collect(maps.Keys(listened))
	if err := installFiles(); err != nil {
		return err
	}
	if err := os.Symlink("polylet", "/usr/bin/kubelet"); err != nil {
		return err
	}
	return runAll([][]string{{"systemctl", "daemon-reload"}, {"systemctl", "reenable", "kubelet"}, {"systemctl", "start", "kubelet"}})
}

// packagedUnit and packagedDropIn are what the packages kubelet and kubeadm install.
const (
	packagedUnit = `[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
`
	packagedDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`
)

const initFile = "/root/init.yaml"

// initConfiguration leaves to kubeadm what it finds out or presumes by itself. Only
// time is scarce here; kubeadm first waits for the API server as for an answer of its.
var initConfiguration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
timeouts:
  controlPlaneComponentHealthCheck: 40m0s
  kubeletHealthCheck: 20m0s
  kubernetesAPICall: 40m0s
  etcdAPICall: 20m0s
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: ` + programs.KubeAPIServer().Version + `
imageRepository: ` + registry.LocalName + `
networking:
  podSubnet: ` + kubeadm.PodCIDR + `
`

// podNetwork is a network for the node's part of the pods' addresses, as a network
// add-on writes it.
func podNetwork(subnet string) string {
	return `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + subnet + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}}, {"type": "portmap", "capabilities": {"portMappings": true}}]}
`
}
