package process

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// longestMounts bounds what is read of a process's mounts: it may have as many as it likes.
const longestMounts = 1 << 20

// mount is a line of a process's mounts.
type mount struct {
	// number is unique among all mounts of the machine.
	number uint64
	// root is the directory of its filesystem that is mounted, at where.
	root, at string
	// kind is the filesystem's.
	kind string
}

// mounts reads a file as /proc/self/mountinfo, until take has had enough.
// Source: https://docs.kernel.org/filesystems/proc.html, mountinfo
func mounts(file string, take func(mount) (more bool)) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // It was only read.
	lines := bufio.NewScanner(io.LimitReader(f, longestMounts))
	lines.Buffer(nil, longestMounts) // An overlay may be of hundreds of directories.
	for lines.Scan() {
		first, second, found := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(first)
		if !found || len(fields) < 5 {
			continue
		}
		kind, _, _ := strings.Cut(second, " ")
		number, _ := strconv.ParseUint(fields[0], 10, 64) //nolint:errcheck // 0 is none.
		if !take(mount{number, fields[3], fields[4], kind}) {
			return
		}
	}
}

// overlaid says by a process's mounts whether its root directory is an overlay. No server
// is asked for it.
func overlaid(file string) (is bool) {
	mounts(file, func(m mount) bool {
		if m.at == "/" {
			is = m.kind == "overlay" || strings.HasPrefix(m.kind, "fuse")
		}
		return true
	})
	return is
}

// Mounted has found called with the mounts that a process sees until it wants no more: the
// number of each, and which directory of its filesystem it has, as the kernel quotes it.
func (p Proc) Mounted(pid int, found func(number uint64, dir string) (more bool)) {
	mounts(filepath.Join(p.living(pid), "mountinfo"), func(m mount) bool { return found(m.number, m.root) })
}
