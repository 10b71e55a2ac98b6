package vm

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// earlyModules are what the kernel needs to find its disks and its network.
var earlyModules = []string{"virtio_pci", "virtio_blk", "virtio_net", "ext4"}

// wholeModules come before them: the kernel for virtual machines has them in itself.
var wholeModules = []string{"crc32c_generic"}

// earlyOf are those of a kernel, by its package.
func earlyOf(kernel string) []string {
	if kernel == WholeKernel {
		return slices.Concat(wholeModules, earlyModules)
	}
	return earlyModules
}

// initScript runs in busybox before the system does: it loads the modules in
// the order of their names, mounts the disks, sets the network up and changes to
// the root disk. So the system needs no device manager, which is most of what an
// emulated one boots for.
const initScript = `#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
for m in /modules/*.ko; do /bin/busybox insmod $m || echo "cannot load $m"; done
/bin/busybox mount -t ext4 /dev/vda /root || echo "cannot mount the root disk"
/bin/busybox mount -t ext4 -o ro /dev/vdb /root/polylet || echo "cannot mount the payload"
/bin/busybox ip address add 10.0.2.15/24 dev eth0
/bin/busybox ip link set eth0 up
/bin/busybox ip route add default via 10.0.2.2 dev eth0
/bin/busybox umount /dev
exec /bin/busybox switch_root /root /lib/systemd/systemd
`

// writeInitrd writes an initial RAM disk of busybox, the early modules and the
// script.
func writeInitrd(ctx context.Context, dir, root, version, target string, early []string) error {
	tree := filepath.Join(dir, "initrd.d")
	for _, d := range []string{"bin", "dev", "root", "modules"} {
		if err := os.MkdirAll(filepath.Join(tree, d), 0o755); err != nil {
			return err
		}
	}
	if err := copyFile("/bin/busybox", filepath.Join(tree, "bin/busybox"), 0o755); err != nil {
		return fmt.Errorf("make the initial RAM disk: %w", err)
	}
	if err := os.WriteFile(filepath.Join(tree, "init"), []byte(initScript), 0o755); err != nil {
		return err
	}
	modules := filepath.Join(root, "usr/lib/modules", version)
	needed, err := withDependencies(modules, early)
	if err != nil {
		return err
	}
	names := []string{"init", "bin", "bin/busybox", "dev", "root", "modules"}
	for n, module := range needed {
		name := fmt.Sprintf("modules/%02d-%s", n, filepath.Base(module))
		if err := copyFile(filepath.Join(modules, module), filepath.Join(tree, name), 0o644); err != nil {
			return err
		}
		names = append(names, name)
	}
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	defer out.Close()
	cpio := exec.CommandContext(ctx, "cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0")
	cpio.Dir, cpio.Stdin, cpio.Stdout, cpio.Stderr = tree, strings.NewReader(strings.Join(names, "\n")+"\n"), out, os.Stderr
	if err := cpio.Run(); err != nil {
		return fmt.Errorf("make the initial RAM disk with cpio: %w", err)
	}
	return nil
}

// withDependencies returns the module files in an order in which they can be
// loaded, from modules.dep, whose lines are "FILE: WHAT IT NEEDS, last first".
// A name that is not there is built into the kernel.
func withDependencies(modules string, names []string) ([]string, error) {
	f, err := os.Open(filepath.Join(modules, "modules.dep"))
	if err != nil {
		return nil, fmt.Errorf("find the kernel's modules: %w", err)
	}
	defer f.Close()
	needs := map[string][]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		file, rest, _ := strings.Cut(lines.Text(), ":")
		needs[file] = strings.Fields(rest)
	}
	var ordered []string
	for _, name := range names {
		for file, deps := range needs {
			if strings.TrimSuffix(filepath.Base(file), ".ko") != name {
				continue
			}
			for _, dep := range slices.Backward(deps) {
				ordered = append(ordered, dep)
			}
			ordered = append(ordered, file)
		}
	}
	var once []string
	for _, file := range ordered {
		if !slices.Contains(once, file) {
			once = append(once, file)
		}
	}
	return once, lines.Err()
}
