package main

import (
	"context"
	"strings"

	"github.com/polylet/polylet/test/harness/cluster"
	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/kubeadm"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/vm"
)

// kind is what the machine is booted for.
type kind struct {
	// name is the target of make, and begins the names of what a run leaves.
	name, title string
	// memory is how much the machine has, in MiB.
	memory int
	// programs are needed besides the runtime; packages are Debian's to build them, by a file.
	programs []programs.Peer
	packages map[string]string
	// images saves further images; nil saves none.
	images func(ctx context.Context, b *programs.Builder, dir, saved string) error
	// environment is the tests'; they are the machine's to tell apart.
	environment string
	// image is the package of its kernel, if not the one for virtual machines; kernel are
	// further words of its command line.
	image, kernel string
	// disks are what the machine has beside its own.
	disks []vm.Disk
	// wire is whether it has a wire between two interfaces of its own.
	wire bool
	// driver is whether there is the tests' CSI driver.
	driver bool
	// cluster is whether there is a control plane on this machine, which the other one
	// joins; after it is off, judge looks there.
	cluster bool
	judge   func(ctx context.Context, c *cluster.Cluster) error
	// part: only some of the tests run.
	part bool
}

// only is a kind of which some tests run, and each of them, whatever fails.
func (k kind) only(names string) kind {
	k.environment = strings.TrimSuffix(k.environment, "\n") + " -test.failfast=false -test.run=" + names + "\n"
	k.part = true
	return k
}

var standalone = kind{
	name: "vm", title: "systemd and cgroup v2", memory: 3072,
	environment: "POLYLET_VM=standalone\nARGUMENTS=-test.skip=^Test(Kubeadm|Joined|SELinux|PodsyncsRightsAreEnoughForFC)\n",
}

var kubeadmNode = kind{
	name: "vm-kubeadm", title: "kubeadm under systemd", memory: 6144, images: saveCluster,
	programs:    []programs.Peer{programs.Kubeadm(), programs.Kubectl()},
	environment: "POLYLET_VM=kubeadm\nARGUMENTS=-test.run=^TestKubeadm\n",
}

var joinedNode = kind{
	name: "vm-joined", title: "configuration, reboot, pressure and shutdown of a cluster's node under systemd", memory: 3072, cluster: true, judge: judgeShutdown,
	programs: []programs.Peer{programs.Runc()}, packages: programs.RuncPackages(),
	disks:       []vm.Disk{{Serial: "images", Size: 1 << 30}, {Serial: "slow", Size: 4 << 30, Writes: 1 << 19}},
	environment: "POLYLET_VM=joined\nARGUMENTS=-test.run=^TestJoined\n",
}

// selinuxNode is a cluster's node on a kernel with SELinux.
var selinuxNode = kind{
	name: "vm-selinux", title: "a cluster's node under systemd on a kernel with SELinux", memory: 3072, cluster: true, driver: true, kernel: vm.SELinux,
	environment: "POLYLET_VM=selinux\nARGUMENTS=-test.run=^TestSELinux\n",
}

// fcNode is a standalone node with a fabric: of the kernel's own initiator and target of
// Fibre Channel over Ethernet, which Debian's kernel for virtual machines has not.
var fcNode = kind{
	name: "vm-fc", title: "Fibre Channel on a standalone node under systemd", memory: 3072, image: vm.WholeKernel, wire: true,
	environment: "POLYLET_VM=fc\nARGUMENTS=-test.run=^TestPodsyncsRightsAreEnoughForFC\n",
}

func saveCluster(ctx context.Context, b *programs.Builder, dir, saved string) error {
	binaries, err := b.Binaries(ctx, programs.KubeadmCluster()...)
	if err != nil {
		return err
	}
	return images.SaveCluster(ctx, dir, saved, kubeadm.Images(binaries))
}
