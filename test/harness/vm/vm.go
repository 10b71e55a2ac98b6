// Package vm boots a small Debian with systemd and cgroup v2 under qemu, for
// what the test machine itself does not have, runs one program in it and hands
// out what that prints. It must never reach the network, nor change the cached
// system that it boots from.
package vm

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Program is the name of the test program in the payload directory that the
// machine runs, Environment that of the file with its environment, of which
// ARGUMENTS are put to its own, and PayloadAt where it finds that directory.
// KeptDisk is what it mounts to leave files behind; see Config.Kept. Address is the
// machine's own.
const (
	Program     = "vm.test"
	Environment = "environment"
	PayloadAt   = "/polylet"
	KeptDisk    = "/dev/vdc"
	Address     = "10.0.2.15"
)

// SELinux are words for a kernel that is to use the policy that lies in the machine, and
// only says what that denies.
const SELinux = "security=selinux selinux=1 enforcing=0"

// WholeKernel is Debian's package of a kernel with the modules for machines of all kinds,
// among them those of Fibre Channel, which the one for virtual machines lacks.
const WholeKernel = "linux-image-amd64"

// Config says what to boot.
type Config struct {
	// Image is Debian's package of the kernel; empty is that of the kernel for virtual
	// machines. Each has a system of its own in the cache.
	Image string
	// Kernel are further words of its command line.
	Kernel string
	// Payload is a directory that the machine sees, read-only, at PayloadAt. It
	// holds Program and Environment.
	Payload string
	// Memory is how much the machine has, in MiB.
	Memory int
	// Reach are addresses on this machine's loopback that the program reaches by others,
	// HOST:PORT both; it reaches nothing else.
	Reach map[string]string
	// Open are ports of the machine that are reached on this one by Address, which must
	// then be one of its addresses.
	Open []string
	// Reboots is whether the machine starts again when it asks to, with its disk as it is
	// then; else it is off.
	Reboots bool
	// Kept is a directory that gets, once the machine is off, what lies on a disk of its
	// own, an empty ext4 at KeptDisk; "" leaves that disk out.
	Kept string
	// Disks are further disks that the machine has, empty at first.
	Disks []Disk
	// Wire is whether the machine has two more network interfaces, eth1 and eth2, that a
	// wire leads between, for frames of WireMTU bytes.
	Wire bool
	// Work is a directory for the disks but the root one, and the console's log.
	Work string
	// Output receives what the program prints, line by line.
	Output io.Writer
	// Progress receives lines about preparation.
	Progress io.Writer
}

// Disk is a virtual disk.
type Disk struct {
	// Serial is its serial number, by which the machine tells it from others.
	Serial string
	// Size is how much it holds, Writes how much of that it takes in a second, in bytes; 0
	// is as much as comes.
	Size, Writes int64
}

// firstSlot is the first further disk's on the machine's bus.
const firstSlot = 0x10

// WireMTU is enough for a frame of Fibre Channel in one of Ethernet; firstEnd is the slot of
// the wire's first end, behind those of the disks.
const (
	WireMTU  = 2500
	firstEnd = 0x1a
)

// wire are arguments of two interfaces with a wire between them.
func wire() (out []string) {
	for n := range 2 {
		out = append(out, "-netdev", fmt.Sprintf("hubport,id=end%d,hubid=1", n),
			"-device", fmt.Sprintf("virtio-net-pci,addr=%#x,netdev=end%d,mac=52:54:00:fc:00:%02d,host_mtu=%d", firstEnd+n, n, n+1, WireMTU))
	}
	return out
}

func (d Disk) file(c Config) string { return filepath.Join(c.Work, d.Serial+".disk") }

// arguments are those of the n-th disk, which takes what is written: it knows no shorter way
// for zeros, nor for what is given up. Its slot is behind those of the root disk and the
// payload, whose names depend on that.
func (d Disk) arguments(c Config, n int) []string {
	drive := "if=none,format=raw,cache=unsafe,id=" + d.Serial + ",file=" + d.file(c)
	if d.Writes > 0 {
		drive += ",throttling.bps-write=" + strconv.FormatInt(d.Writes, 10)
	}
	return []string{"-drive", drive, "-device", fmt.Sprintf("virtio-blk-pci,addr=%#x,discard=off,write-zeroes=off,drive=%s,serial=%s", firstSlot+n, d.Serial, d.Serial)}
}

// makeDisks makes files of the disks' sizes, without what they hold.
func makeDisks(c Config) error {
	for _, d := range c.Disks {
		err := os.WriteFile(d.file(c), nil, 0o600)
		if err == nil {
			err = os.Truncate(d.file(c), d.Size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Packages are what Run needs from Debian, by a file of each.
func Packages() map[string]string {
	return map[string]string{
		"/usr/bin/qemu-system-x86_64": "qemu-system-x86", "/usr/sbin/debootstrap": "debootstrap", "/usr/sbin/mke2fs": "e2fsprogs",
		"/usr/bin/cpio": "cpio", "/usr/sbin/depmod": "kmod", "/bin/busybox": "busybox-static",
	}
}

// Console is the file in the work directory with what kernel and systemd said.
func (c Config) Console() string { return filepath.Join(c.Work, "console.log") }

// Prepare builds what every machine boots from, if that is not there yet; it needs the
// network, which Run then does not.
func Prepare(ctx context.Context, progress io.Writer) error {
	_, err := prepare(ctx, kernelPackage, progress)
	return err
}

// Run boots, runs the program and returns when the machine is off. An error
// says that the machine did not run; whether the program was content is in what
// it printed.
func Run(ctx context.Context, c Config) error {
	s, err := prepare(ctx, cmp.Or(c.Image, kernelPackage), c.Progress)
	if err != nil {
		return fmt.Errorf("prepare a virtual machine: %w", err)
	}
	payload := filepath.Join(c.Work, "payload.ext4")
	if err := makeDisk(ctx, c.Payload, payload, "1500M"); err != nil {
		return fmt.Errorf("prepare a virtual machine: %w", err)
	}
	defer os.Remove(payload)
	if err := errors.Join(c.makeKept(ctx), makeDisks(c)); err != nil {
		return fmt.Errorf("prepare a virtual machine: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", arguments(s, c, payload)...)
	cmd.ExtraFiles = []*os.File{writer}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	fmt.Fprintln(c.Progress, "booting …")
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start qemu: %w", err), writer.Close())
	}
	writer.Close() // qemu has it
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fmt.Fprintln(c.Output, strings.TrimRight(lines.Text(), "\r"))
	}
	ran := cmd.Wait()
	if ran != nil {
		ran = fmt.Errorf("run qemu: %w; it said %q, the machine's console is in %s", ran, said.String(), c.Console())
	}
	return errors.Join(ran, c.takeKept())
}

// arguments: software emulation, since nested machines have no other; a network
// that is closed; the root disk's changes are thrown away; the second serial
// port carries the program's output.
func arguments(s system, c Config, payload string) []string {
	nic := "user,restrict=on,model=virtio-net-pci"
	for from, to := range c.Reach {
		host, port, _ := strings.Cut(to, ":")
		nic += ",guestfwd=tcp:" + from + "-cmd:/bin/busybox nc " + host + " " + port // one for each connection
	}
	for _, port := range c.Open {
		nic += ",hostfwd=tcp:" + Address + ":" + port + "-:" + port
	}
	panics := " panic=-1"
	if c.Reboots {
		panics = "" // it stands still, instead of booting again and again
	}
	out := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(c.Memory), "-nodefaults", "-no-user-config", "-display", "none",
		"-kernel", s.kernel, "-initrd", s.initrd,
		"-append", "console=ttyS0 root=/dev/vda rw" + panics + " quiet systemd.unified_cgroup_hierarchy=1 mitigations=off psi=1 loglevel=4" + clock() + " " + c.Kernel,
		"-drive", "file=" + s.disk + ",if=virtio,format=raw,snapshot=on",
		"-drive", "file=" + payload + ",if=virtio,format=raw,readonly=on",
		"-nic", nic,
		"-serial", "file:" + c.Console(),
		"-chardev", "file,id=out,path=/dev/fd/3", "-serial", "chardev:out",
	}
	if c.Kept != "" {
		out = append(out, "-drive", "file="+c.keptImage()+",if=virtio,format=raw,cache=unsafe")
	}
	for n, d := range c.Disks {
		out = append(out, d.arguments(c, n)...)
	}
	if c.Wire {
		out = append(out, wire()...)
	}
	if !c.Reboots {
		out = append(out, "-no-reboot")
	}
	return out
}
