package node_test

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// ownDisk gives a directory of the instance a disk of its own: ext4 on a file, which as
// that of any machine keeps a part of itself for root; where there are no loop devices,
// tmpfs of that size. Without inodes it has as many as is usual.
func (h *house) ownDisk(name string, mebibytes, inodes int) {
	h.Helper()
	dir, err := h.inst.Mkdir(name)
	h.must(err)
	file := h.inst.Path(name + ".img")
	h.must(os.WriteFile(file, nil, 0o600))
	h.must(os.Truncate(file, int64(mebibytes)<<20))
	args := []string{"-q", "-F", "-m", "5"}
	if inodes > 0 {
		args = append(args, "-N", fmt.Sprint(inodes))
	}
	out, err := exec.CommandContext(h.ctx, "mkfs.ext4", append(args, file)...).CombinedOutput()
	if err == nil {
		out, err = exec.CommandContext(h.ctx, "mount", "-o", "loop", file, dir).CombinedOutput() // It frees the device when it is unmounted.
	}
	if err == nil {
		return
	}
	h.Logf("%s is on tmpfs, for there is no ext4 for it: %v: %s", name, err, out)
	options := fmt.Sprintf("size=%dm", mebibytes)
	if inodes > 0 {
		options += fmt.Sprintf(",nr_inodes=%d", inodes)
	}
	h.must(unix.Mount(name, dir, "tmpfs", 0, options))
}

// statfs is what a disk of the instance has.
func (h *house) statfs(name string) (st unix.Statfs_t) {
	h.Helper()
	h.must(unix.Statfs(h.inst.Path(name), &st))
	return st
}
