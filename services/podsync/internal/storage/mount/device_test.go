package mount

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// disk is a file in the place of a device, with programs that write down what they do. A
// file with a program's name and ".hangs" keeps that from its end.
type disk struct {
	t                   *testing.T
	dir, device, target string
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	dir := t.TempDir()
	d := &disk{t, dir, filepath.Join(dir, "disk"), filepath.Join(dir, "target")}
	d.write("disk", "")
	if err := os.Mkdir(d.target, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, does := range map[string]string{
		"blkid":     `[ -e made ] || exit 2; echo TYPE=ext4`,
		"fsck":      ``,
		"mkfs.ext4": `: >made`,
		"mount":     `[ ! -e broken ] || { echo wrong fs type; exit 32; }`,
	} {
		d.write("bin/"+name, `#!/bin/sh
cd "`+dir+`"
echo "$(basename $0) $*" >>done
while [ -e $(basename $0).hangs ]; do sleep 0.01; done
[ $(basename $0) = blkid ] || echo it says something
echo "$(basename $0) ended" >>done
`+does+"\n")
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	return d
}

func (d *disk) write(name, text string) {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil { //nolint:gosec // It is a program.
		d.t.Fatal(err)
	}
}

// done is what the programs did.
func (d *disk) done() string {
	raw, _ := os.ReadFile(filepath.Join(d.dir, "done"))
	return strings.NewReplacer(d.device, "DISK", d.target, "TARGET").Replace(string(raw))
}

// begun waits until a program does something.
func (d *disk) begun(what string) {
	d.t.Helper()
	for until := time.Now().Add(30 * time.Second); !strings.Contains(d.done(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			d.t.Fatalf("%s has not begun: %s", what, d.done())
		}
	}
}

// kernel is that of a new process.
func (d *disk) kernel() *Kernel { return New(Config{Devices: filepath.Join(d.dir, "devices")}) }

func (d *disk) mount(ctx context.Context, k *Kernel) error {
	return k.Device(ctx, d.device, d.target, "ext4", []string{"noatime"})
}

// without is what was done without what only looks.
func without(done string, program string) string {
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(done), "\n") {
		if !strings.HasPrefix(line, program) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestAFilesystemIsMadeOnAnEmptyDiskAndMountedAndMendedTheNextTime(t *testing.T) {
	d := newDisk(t)
	k := d.kernel()
	for range 2 {
		if err := d.mount(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	want := "mkfs.ext4 -F -m0 DISK\nmkfs.ext4 ended\nmount -t ext4 -o noatime,defaults DISK TARGET\nmount ended\n" +
		"fsck -a DISK\nfsck ended\nmount -t ext4 -o noatime,defaults DISK TARGET\nmount ended"
	if got := without(d.done(), "blkid"); got != want {
		t.Errorf("done is\n%s", got)
	}
	if left, err := os.ReadDir(filepath.Join(d.dir, "devices")); len(left) != 0 || err != nil {
		t.Errorf("locks are left: %v, %v", left, err)
	}
	d.write("broken", "")
	err := d.mount(t.Context(), k)
	if err == nil || !strings.Contains(err.Error(), "(fstype: ext4), error mount failed: exit status 32\nMounting command: mount\nMounting arguments: -t ext4 -o noatime,defaults "+d.device+" "+d.target+"\nOutput: it says something\nwrong fs type") {
		t.Error(err)
	}
	other := (*OtherFilesystem)(nil)
	if errors.As(err, &other) {
		t.Error("its filesystem is that which was asked for")
	}
	if err := k.Device(t.Context(), d.device, d.target, "xfs", nil); !errors.As(err, &other) || !strings.Contains(err.Error(), "(fstype: xfs), error mount failed: exit status 32") {
		t.Error(err)
	}
	if err := k.Device(t.Context(), d.device, d.target, "../x", nil); err == nil {
		t.Error("a program of any name is run")
	}
}

// TestADiskThatHangsHoldsNobodyUpAndIsFormattedByOneAtATime: who was told to end leaves the
// program that makes the filesystem to its end, also a process that is not there any more,
// and the next one waits for it.
func TestADiskThatHangsHoldsNobodyUpAndIsFormattedByOneAtATime(t *testing.T) {
	d := newDisk(t)
	d.write("mkfs.ext4.hangs", "")
	tornDown := errors.New("the pod is taken down")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.mount(ctx, d.kernel()) }()
	d.begun("mkfs.ext4 -F")
	cancel(tornDown)
	select {
	case err := <-done:
		if !errors.Is(err, apart.ErrSilent) || !errors.Is(err, tornDown) || podstate.VolumeCauseOf(err) != podstate.VolumeDisk {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the pod's end waits for the disk")
	}
	if _, err := lockDevice(filepath.Join(d.dir, "devices"), d.device, 100*time.Millisecond); !errors.Is(err, rpcerr.ErrUnavailable) {
		t.Errorf("the disk is free while a filesystem is made on it: %v", err)
	}
	go func() { done <- d.mount(t.Context(), d.kernel()) }()
	time.Sleep(300 * time.Millisecond) // for a real process, which must not do anything
	if err := os.Remove(filepath.Join(d.dir, "mkfs.ext4.hangs")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	want := "blkid -p -s TYPE -s PTTYPE -o export DISK\nblkid ended\nmkfs.ext4 -F -m0 DISK\nmkfs.ext4 ended\n" +
		"blkid -p -s TYPE -s PTTYPE -o export DISK\nblkid ended\nfsck -a DISK\nfsck ended\nmount -t ext4 -o noatime,defaults DISK TARGET\nmount ended\n"
	if got := d.done(); got != want {
		t.Errorf("done is\n%s", got)
	}
}

// TestWhatWasMountedLateIsNotMountedAgain: it is found once the device is free.
func TestWhatWasMountedLateIsNotMountedAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	d := newDisk(t)
	k := d.kernel()
	if err := k.Tmpfs(d.target, 1<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Unmount(d.target) })
	if err := d.mount(t.Context(), k); err != nil || d.done() != "" {
		t.Errorf("%v, done is\n%s", err, d.done())
	}
}

// TestAFilesystemWithoutADeviceIsNotMountedInADevicesPlace: whoever names the filesystem of a
// disk of his own would have the host's processes in his pod, or all memory.
func TestAFilesystemWithoutADeviceIsNotMountedInADevicesPlace(t *testing.T) {
	device, target := filepath.Join(t.TempDir(), "device"), t.TempDir()
	if err := os.WriteFile(device, make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", device).Run() // with root it could else be mounted
	k := New(Config{Devices: filepath.Join(t.TempDir(), "devices")})
	for _, filesystem := range []string{"proc", "sysfs", "tmpfs", "ramfs"} {
		err := k.Device(t.Context(), device, target, filesystem, nil)
		if mounted, _ := k.Mounted(target); mounted {
			t.Errorf("%s is mounted", filesystem)
			if err := k.Unmount(target); err != nil {
				t.Fatal(err)
			}
		}
		if podstate.VolumeCauseOf(err) != podstate.VolumeSpec || !strings.Contains(err.Error(), "is no filesystem of a device") {
			t.Errorf("%s: %v", filesystem, err)
		}
	}
}

func TestWhatWasMountedIsKnownByTheKernelsListOfFilesystems(t *testing.T) {
	const list = "nodev\tproc\nnodev\tfuse\n\text4\n\tfuseblk\n"
	for name, want := range map[string]bool{"proc": true, "fuse": true, "fuse.sshfs": true, "ext4": false, "fuseblk": false, "fuseblk.ntfs": false, "xfs": false} {
		if got := deviceless(list, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
