package vm

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/lockfile"
	"github.com/polylet/polylet/test/harness/workspace"
)

const (
	release = "bookworm"
	mirror  = "http://deb.debian.org/debian"
	// kernelPackage depends on the newest kernel for virtual machines; see WholeKernel.
	kernelPackage = "linux-image-cloud-amd64"
	// diskSize is the root disk's, most of which takes no room.
	diskSize = "6G"
)

// packages are what the machine needs beside the minimal base.
var packages = []string{
	"systemd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "iptables",
	"runc", "containernetworking-plugins", "ca-certificates", "open-iscsi", "multipath-tools",
	"selinux-policy-default", "policycoreutils", // of a kernel that is told to use them; see SELinux
	"nfs-kernel-server", "nfs-common", "rpcbind", // both ends; a test starts them
	"xfsprogs", // to make filesystems with
}

// label has the policy know containers' types and gives each file its label, by that policy
// and without a kernel that knows any. $0 is the root directory.
const label = `chroot "$0" semodule -s default -n -i /usr/share/selinux/polylet/containers.cil && mount -t proc proc "$0/proc" &&
exec chroot "$0" setfiles -m -e /proc /etc/selinux/default/contexts/files/file_contexts /`

// masked units never start: the initial RAM disk has done it, or nobody is there
// for whom it would be done.
var masked = []string{
	"systemd-udevd.service", "systemd-udevd-kernel.socket", "systemd-udevd-control.socket", "systemd-udev-trigger.service", "systemd-networkd.service",
	"systemd-logind.service", "getty.target", "systemd-random-seed.service", "systemd-pstore.service", "systemd-binfmt.service",
	"systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "e2scrub_reap.service", "timers.target",
	"multipathd.service", "multipathd.socket",
	"nfs-server.service", "nfs-client.target", "nfs-blkmap.service", "rpc-statd-notify.service", "rpcbind.service", "rpcbind.socket",
}

// files lie in the machine's root directory as they lie here.
//
//go:embed all:files
var files embed.FS

// runAtBoot is the unit of the tests.
const runAtBoot = "/etc/systemd/system/polylet-test.service"

// system is a built root file system and the kernel that goes with it.
type system struct{ disk, kernel, initrd string }

// prepare returns the system, building it when the cache has none of exactly
// this release, this kernel, these packages and these files. The base of Debian's packages
// is kept apart: it takes minutes, and the files change more often.
func prepare(ctx context.Context, kernel string, progress io.Writer) (system, error) {
	baseKey, key, err := keys(kernel)
	if err != nil {
		return system{}, err
	}
	base, dir := filepath.Join(workspace.Cache(), "vm", "base-"+baseKey), filepath.Join(workspace.Cache(), "vm", key)
	s := system{filepath.Join(dir, "root.ext4"), filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd")}
	if built(dir) {
		return s, nil
	}
	err = complete(ctx, base, progress, func() error {
		fmt.Fprintln(progress, "building Debian's minimal system for the virtual machine (about 2 min, cached afterwards) …")
		return makeBase(ctx, base, kernel)
	})
	if err != nil {
		return s, err
	}
	return s, complete(ctx, dir, progress, func() error { return s.make(ctx, base, dir, kernel) })
}

// keys identify everything that the base, and the system on it, depend on.
func keys(kernel string) (base, whole string, err error) {
	sum := sha256.New()
	fmt.Fprint(sum, release, kernel, packages)
	base = hex.EncodeToString(sum.Sum(nil))[:12]
	fmt.Fprint(sum, earlyOf(kernel), initScript, masked, runAtBoot, diskSize, label)
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(path)
		fmt.Fprintln(sum, path)
		sum.Write(data)
		return err
	})
	return base, hex.EncodeToString(sum.Sum(nil))[:12], err
}

func built(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "complete"))
	return err == nil
}

// complete fills an empty directory and marks it when that went well. One program does that at a
// time: those that come meanwhile wait, and find it filled.
func complete(ctx context.Context, dir string, progress io.Writer, fill func() error) error {
	if built(dir) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	waiting := func() { fmt.Fprintf(progress, "waiting for %s: another program builds it …\n", dir) }
	_, release, err := lockfile.Hold(ctx, lockfile.Config{Path: dir + ".lock", Waiting: waiting}, klog.Logger{})
	if err != nil {
		return err
	}
	defer release()
	if built(dir) {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "complete"), nil, 0o644)
}

func makeBase(ctx context.Context, dir, kernel string) error {
	root := filepath.Join(dir, "root")
	if err := command(ctx, "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), release, root, mirror); err != nil {
		return err
	}
	version, err := addKernel(ctx, dir, root, kernel)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "kernel-version"), []byte(version), 0o644)
}

func (s system) make(ctx context.Context, base, dir, kernel string) error {
	text, err := os.ReadFile(filepath.Join(base, "kernel-version"))
	if err != nil {
		return err
	}
	version, root := string(text), filepath.Join(dir, "root")
	if err := command(ctx, "cp", "-a", filepath.Join(base, "root"), root); err != nil {
		return err
	}
	if err := addFiles(root); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(root, "boot", "vmlinuz-"+version), s.kernel, 0o644); err != nil {
		return err
	}
	if err := writeInitrd(ctx, dir, root, version, s.initrd, earlyOf(kernel)); err != nil {
		return err
	}
	if err := command(ctx, "unshare", "--mount", "sh", "-c", label, root); err != nil {
		return err
	}
	if err := makeDisk(ctx, root, s.disk, diskSize); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// addKernel unpacks the kernel behind a package and its modules into root, without the
// scripts of the package, and returns the kernel's version.
func addKernel(ctx context.Context, dir, root, kernel string) (version string, err error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", kernel).Output()
	if err != nil {
		return "", fmt.Errorf("find the kernel behind %s: %w; run apt-get update", kernel, err)
	}
	for _, word := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(word, "linux-image-"); ok && strings.HasPrefix(v, "6.") {
			version = v
		}
	}
	if version == "" {
		return "", fmt.Errorf("find the kernel behind %s: apt-cache names none in %q", kernel, out)
	}
	download := exec.CommandContext(ctx, "apt-get", "download", "linux-image-"+version)
	download.Dir = dir
	if out, err := download.CombinedOutput(); err != nil {
		return "", fmt.Errorf("download the kernel %s: %w\n%s", version, err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "linux-image-*.deb"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("download the kernel %s: found %v in %s (%v)", version, found, dir, err)
	}
	// Extracted beside, then copied: /lib is a link in root, and dpkg-deb would
	// replace it by a directory.
	unpacked := filepath.Join(dir, "kernel")
	if err := command(ctx, "dpkg-deb", "-x", found[0], unpacked); err != nil {
		return "", err
	}
	for _, copied := range [][2]string{{"boot", "boot"}, {"lib/modules", "usr/lib/modules"}} {
		if err := os.MkdirAll(filepath.Join(root, copied[1]), 0o755); err != nil {
			return "", err
		}
		if err := command(ctx, "cp", "-a", filepath.Join(unpacked, copied[0])+"/.", filepath.Join(root, copied[1])); err != nil {
			return "", err
		}
	}
	return version, command(ctx, "depmod", "-b", root, version)
}

// addFiles copies the embedded files into root and has systemd start the test.
func addFiles(root string) error {
	err := fs.WalkDir(files, "files", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(root, strings.TrimPrefix(path, "files"))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
	if err != nil {
		return fmt.Errorf("add the machine's files: %w", err)
	}
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	if err := os.Symlink(runAtBoot, filepath.Join(wants, filepath.Base(runAtBoot))); err != nil {
		return fmt.Errorf("enable %s: %w", runAtBoot, err)
	}
	for _, unit := range masked {
		if err := os.Symlink("/dev/null", filepath.Join(root, "etc/systemd/system", unit)); err != nil {
			return fmt.Errorf("mask %s: %w", unit, err)
		}
	}
	return os.MkdirAll(filepath.Join(root, PayloadAt), 0o755)
}

// makeDisk makes an ext4 image of the directory.
func makeDisk(ctx context.Context, dir, disk, size string) error {
	return command(ctx, "mke2fs", "-q", "-t", "ext4", "-d", dir, disk, size)
}

func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		if len(out) > 4096 {
			out = out[len(out)-4096:]
		}
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, mode)
}
