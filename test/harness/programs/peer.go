// Package programs builds the real programs that the node tests run against, from
// the pinned modules under test/controlplane, and keeps the binaries. It must
// never take a program of another version from the machine.
package programs

import "slices"

// Peer is one pinned program.
type Peer struct {
	// Name is the file name of the binary.
	Name string
	// Version is the version of the module it is built from.
	Version string
	// pkg is the import path of its main package.
	pkg string
	// dir is the pinning module, relative to the repository's root.
	dir string
	// flags are further flags of go build.
	flags []string
	// cgo says that it has code in C; it is linked statically.
	cgo bool
	// test says that pkg is a test binary (go test -c), not a main package.
	test bool
	// about is how long a build takes on two cores with an empty cache.
	about string
}

const (
	kubernetesVersion = "v1.36.3"
	etcdVersion       = "v3.6.8"
	containerdVersion = "v2.4.2"
	runcVersion       = "v1.2.6"
	ginkgoVersion     = "v2.28.1"
	coreDNSVersion    = "v1.15.0"

	metricsServerVersion = "v0.9.0"

	kubernetesDir  = "test/controlplane/kubernetes"
	etcdDir        = "test/controlplane/etcd"
	containerdDir  = "test/controlplane/containerd"
	runcDir        = "test/controlplane/runc"
	conformanceDir = "test/conformance"
	e2eNodeDir     = "test/e2enode"
	kubeProxyDir   = "test/controlplane/kubeproxy"
	coreDNSDir     = "test/controlplane/coredns"
	kubeadmDir     = "test/controlplane/kubeadm"

	metricsServerDir = "test/controlplane/metricsserver"
	csiDir           = "test/controlplane/csi"
	csiMockDir       = "test/controlplane/csimock"

	csiModules         = "github.com/kubernetes-csi/"
	snapshotter        = "external-snapshotter/v8"
	snapshotterVersion = "v8.6.0"

	// kubernetesDate is the release's own time, so that a build is reproducible.
	kubernetesDate = "2026-07-22T18:07:38Z"
)

// Etcd is the store of the apiserver.
func Etcd() Peer {
	return Peer{Name: "etcd", Version: etcdVersion, pkg: "go.etcd.io/etcd/server/v3", dir: etcdDir, about: "1 min"}
}

// KubeAPIServer is the apiserver.
func KubeAPIServer() Peer { return kubernetes("kube-apiserver", "3 min") }

// KubeControllerManager is the controller manager.
func KubeControllerManager() Peer { return kubernetes("kube-controller-manager", "2 min") }

// KubeScheduler is the scheduler.
func KubeScheduler() Peer { return kubernetes("kube-scheduler", "1 min") }

// Kubectl is the command-line client.
func Kubectl() Peer { return kubernetes("kubectl", "1 min") }

// KubeProxy makes services work, for tests of the upstream suite.
func KubeProxy() Peer {
	p := kubernetes("kube-proxy", "1 min")
	p.dir = kubeProxyDir
	return p
}

// Kubeadm makes clusters and joins nodes to them.
func Kubeadm() Peer {
	p := kubernetes("kubeadm", "1 min")
	p.dir = kubeadmDir
	return p
}

// KubeadmCluster lists what a cluster that kubeadm makes is built of, besides a
// runtime and the agent.
func KubeadmCluster() []Peer { return append(ControlPlane(), KubeProxy(), CoreDNS(), Kubeadm()) }

// CoreDNS answers for the cluster's names, for tests of the upstream suite.
func CoreDNS() Peer {
	return Peer{
		Name: "coredns", Version: coreDNSVersion, pkg: "github.com/polylet/polylet/test/controlplane/coredns", dir: coreDNSDir,
		flags: []string{"-ldflags", "-s -w"}, about: "1 min",
	}
}

// MetricsServer is what `kubectl top` asks, and what asks the agent.
func MetricsServer() Peer {
	return Peer{
		Name: "metrics-server", Version: metricsServerVersion, pkg: "sigs.k8s.io/metrics-server/cmd/metrics-server", dir: metricsServerDir,
		flags: []string{"-ldflags", "-s -w"}, about: "3 min",
	}
}

// Kubelet is the agent that polylet is compared with.
func Kubelet() Peer { return kubernetes("kubelet", "3 min") }

// E2ETest is the upstream end-to-end suite.
func E2ETest() Peer {
	p := kubernetes("e2e.test", "5 min")
	p.pkg, p.dir, p.test = "k8s.io/kubernetes/test/e2e", conformanceDir, true
	return p
}

// E2ENodeTest is the upstream node end-to-end suite, with the etcd and the
// apiserver that it runs against.
func E2ENodeTest() Peer {
	p := kubernetes("e2e_node.test", "6 min")
	p.pkg, p.dir, p.test = "k8s.io/kubernetes/test/e2e_node", e2eNodeDir, true
	return p
}

// Agnhost is the program of the suite's own test image.
func Agnhost() Peer {
	p := kubernetes("agnhost", "1 min")
	p.pkg, p.dir = "k8s.io/kubernetes/test/images/agnhost", conformanceDir
	return p
}

// Ginkgo runs the suite in several processes.
func Ginkgo() Peer {
	return Peer{
		Name: "ginkgo", Version: ginkgoVersion, pkg: "github.com/onsi/ginkgo/v2/ginkgo", dir: conformanceDir,
		flags: []string{"-ldflags", "-s -w"}, about: "1 min",
	}
}

// CSIControllers are what stands beside a CSI driver in a cluster: what attaches, what
// makes and what grows its volumes. They are newer than those that the upstream suite's
// manifests name: older ones no module has.
func CSIControllers() []Peer {
	return []Peer{
		csi("csi-attacher", "v4.12.0", "external-attacher/v4"), csi("csi-provisioner", "v6.3.0", "external-provisioner/v6"),
		csi("csi-resizer", "v2.2.0", "external-resizer/v2"),
	}
}

// CSISidecars are those, what makes snapshots, and the driver that the upstream suite's
// tests bring.
func CSISidecars() []Peer {
	return append(CSIControllers(), csi("csi-snapshotter", snapshotterVersion, snapshotter), Peer{
		Name: "csimock", Version: kubernetesVersion, pkg: "github.com/polylet/polylet/test/controlplane/csimock", dir: csiMockDir,
		flags: []string{"-ldflags", "-s -w"}, about: "1 min",
	})
}

// SnapshotController is the cluster's part of volumes' snapshots.
func SnapshotController() Peer { return csi("snapshot-controller", snapshotterVersion, snapshotter) }

func csi(name, version, module string) Peer {
	return Peer{Name: name, Version: version, pkg: csiModules + module + "/cmd/" + name, dir: csiDir, flags: []string{"-ldflags", "-s -w"}, about: "2 min"}
}

// Conformance lists what `make conformance` needs besides a cluster.
func Conformance() []Peer { return []Peer{Agnhost(), Ginkgo(), E2ETest()} }

// NodeSuite lists what `make e2e-node` needs besides the agent.
func NodeSuite() []Peer {
	return []Peer{Containerd(), ContainerdShim(), Agnhost(), Ginkgo(), E2ENodeTest()}
}

// Containerd is the runtime.
func Containerd() Peer {
	return containerd("containerd", containerdVersion, "3 min")
}

// ContainerdShim is what containerd starts per pod.
func ContainerdShim() Peer {
	return containerd("containerd-shim-runc-v2", containerdVersion, "1 min")
}

// Runc makes containers with a user namespace, which that of Debian bookworm does not, and is
// named so that it is not taken for that. It is built with what RuncPackages lists.
func Runc() Peer {
	return Peer{
		Name: "runc-users", Version: runcVersion, pkg: "github.com/opencontainers/runc", dir: runcDir, cgo: true, about: "1 min",
		flags: []string{"-tags", "netgo,osusergo,seccomp", "-ldflags", "-s -w -extldflags -static -X main.version=" + runcVersion[1:]},
	}
}

// RuncPackages are what Runc is built with from Debian, by a file of each.
func RuncPackages() map[string]string {
	return map[string]string{"/usr/include/seccomp.h": "libseccomp-dev", "/usr/bin/pkg-config": "pkg-config", "/usr/bin/gcc": "gcc"}
}

// ControlPlane lists what a cluster needs, in the order of building.
func ControlPlane() []Peer {
	return []Peer{Etcd(), KubeAPIServer(), KubeControllerManager(), KubeScheduler(), Kubectl()}
}

// All lists every peer.
func All() []Peer {
	return slices.Concat([]Peer{Containerd(), ContainerdShim()}, KubeadmCluster(), []Peer{Kubelet(), MetricsServer()}, CSIControllers())
}

func kubernetes(name, about string) Peer {
	set := "-s -w"
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		set += " -X " + pkg + ".gitVersion=" + kubernetesVersion +
			" -X " + pkg + ".gitMajor=1 -X " + pkg + ".gitMinor=36" +
			" -X " + pkg + ".gitTreeState=archive -X " + pkg + ".buildDate=" + kubernetesDate
	}
	return Peer{
		Name: name, Version: kubernetesVersion, pkg: "k8s.io/kubernetes/cmd/" + name,
		dir: kubernetesDir, flags: []string{"-ldflags", set}, about: about,
	}
}

func containerd(name, version, about string) Peer {
	const module = "github.com/containerd/containerd/v2"
	return Peer{
		Name: name, Version: version, pkg: module + "/cmd/" + name, dir: containerdDir, about: about,
		flags: []string{
			"-tags", "no_btrfs,no_devmapper,no_zfs",
			"-ldflags", "-s -w -X " + module + "/version.Version=" + version,
		},
	}
}
