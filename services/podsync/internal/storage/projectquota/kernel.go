package projectquota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attributes are what a directory has of projects; inherited: so has what is made in it.
type attributes struct {
	project   uint32
	inherited bool
}

// quota is what is counted of a project; limited: somebody has set limits for it.
type quota struct {
	Usage
	limited bool
}

// kernel is asked about open directories.
type kernel interface {
	attributes(dir *os.File) (attributes, error)
	set(dir *os.File, a attributes) error
	// quota is that of a project of the directory's filesystem; zero where nothing is known
	// of it.
	quota(dir *os.File, id uint32) (quota, error)
}

// The kernel's <linux/fs.h> and <linux/quota.h>, as far as golang.org/x/sys has them not.
const (
	fsGetXattr  = 0x801c581f // FS_IOC_FSGETXATTR
	fsSetXattr  = 0x401c5820 // FS_IOC_FSSETXATTR
	projInherit = 0x200      // FS_XFLAG_PROJINHERIT
	getQuota    = 0x800007   // Q_GETQUOTA
	ofProjects  = 2          // PRJQUOTA
)

// fsxattr is the kernel's struct of that name.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

// dqblk is struct if_dqblk.
type dqblk struct {
	bhardlimit, bsoftlimit, curspace  uint64
	ihardlimit, isoftlimit, curinodes uint64
	btime, itime                      uint64
	valid                             uint32
	_                                 uint32
}

// linux is the kernel that runs.
type linux struct{}

func (linux) attributes(dir *os.File) (attributes, error) {
	x, err := xattrOf(dir)
	return attributes{project: x.projid, inherited: x.xflags&projInherit != 0}, err
}

func xattrOf(dir *os.File) (x fsxattr, err error) {
	return x, ioctl(dir, fsGetXattr, &x)
}

func (linux) set(dir *os.File, a attributes) error {
	x, err := xattrOf(dir)
	if err != nil {
		return err
	}
	x.projid = a.project
	if x.xflags &^= projInherit; a.inherited {
		x.xflags |= projInherit
	}
	return ioctl(dir, fsSetXattr, &x)
}

func ioctl(dir *os.File, request uintptr, x *fsxattr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(unsafe.Pointer(x))) //nolint:gosec // As ioctl(2) wants it.
	if errno != 0 {
		return missing(fmt.Errorf("look at its project or set it: %w", errno))
	}
	return nil
}

func (linux) quota(dir *os.File, id uint32) (quota, error) {
	var d dqblk
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, dir.Fd(), getQuota<<8|ofProjects, uintptr(id), uintptr(unsafe.Pointer(&d)), 0, 0) //nolint:gosec // As quotactl_fd(2) wants it.
	switch errno {
	case 0:
		return quota{Usage{Bytes: d.curspace, Inodes: d.curinodes}, d.bhardlimit|d.bsoftlimit|d.ihardlimit|d.isoftlimit != 0}, nil
	case unix.ENOENT:
		return quota{}, nil // XFS, of a project that never had anything.
	}
	return quota{}, missing(fmt.Errorf("ask for the quota of project %d: %w", id, errno))
}

// missing makes ErrNone of an error that says so.
func missing(err error) error {
	for _, errno := range []unix.Errno{unix.ESRCH, unix.ENOTSUP, unix.EINVAL, unix.ENOSYS, unix.ENOTTY} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%w: %w", ErrNone, err)
		}
	}
	return err
}

// open opens a directory itself: no link in its place, and nothing that is mounted on it,
// which may be somebody's who does not answer.
func open(path string) (*os.File, error) {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(parent)
	fd, err := unix.Openat2(parent, filepath.Base(path), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}
