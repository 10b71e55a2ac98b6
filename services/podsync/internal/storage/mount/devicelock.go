package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/exec"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
)

const (
	// lockWithin is how long one waits for the programs of another that work on a device.
	lockWithin = time.Minute
	// mostSaid is how much of what a program says is told, in bytes.
	mostSaid = 8 << 10
)

// lockDevice takes a device, whatever it is called, for its caller and for the programs that
// it hands the file to: the kernel gives the device back with the last of those, also one
// that has outlived its caller. The error is rpcerr.ErrUnavailable if it is not given back in time;
// a thread waits on, until the caller, a process of its own, ends.
func lockDevice(dir, device string, within time.Duration) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: device, Err: err}
	}
	name := fmt.Sprintf("%d-%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		name = fmt.Sprintf("file-%d-%d", st.Dev, st.Ino)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		taken := make(chan error, 1)
		go func() { taken <- flock(f) }()
		select {
		case err = <-taken:
		case <-late.C:
			go func() { // the kernel waits still
				_ = errors.Join(<-taken, f.Close())
			}()
			return nil, fmt.Errorf("%w: a program that was begun before still works on %s (it holds %s): see that the disk answers", rpcerr.ErrUnavailable, device, f.Name())
		}
		if err == nil && current(f) {
			return f, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

func flock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// current says whether a file is still the one of its name.
func current(f *os.File) bool {
	own, ownErr := f.Stat()
	named, err := os.Stat(f.Name())
	return ownErr == nil && err == nil && os.SameFile(own, named)
}

// programs are begun with a file that is theirs, too, and go on when this process ends: none
// writes into a pipe of its.
type programs struct {
	exec.Interface
	lock *os.File
}

// Command implements exec.Interface.
func (p programs) Command(name string, args ...string) exec.Cmd {
	return &program{p.Interface.Command(name, args...), osexec.Command(name, args...), p.lock}
}

type program struct {
	exec.Cmd
	run  *osexec.Cmd
	lock *os.File
}

// CombinedOutput implements exec.Cmd.
func (p *program) CombinedOutput() ([]byte, error) {
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for what %s says: %w", p.run.Args[0], err)
	}
	out := os.NewFile(uintptr(fd), "output") //nolint:gosec // A descriptor is not negative.
	defer func() { _ = out.Close() }()
	p.run.Stdout, p.run.Stderr, p.run.ExtraFiles = out, out, []*os.File{p.lock}
	if strings.HasPrefix(p.run.Args[0], "mkfs.") {
		apart.Tell(p.run.Args[0])
	}
	err = p.run.Run()
	said, readErr := io.ReadAll(io.NewSectionReader(out, 0, mostSaid))
	ended := (*osexec.ExitError)(nil)
	switch {
	case err == nil:
		return said, readErr
	case errors.As(err, &ended):
		return said, &exec.ExitErrorWrapper{ExitError: ended}
	case errors.Is(err, osexec.ErrNotFound):
		return nil, exec.ErrExecutableNotFound
	}
	return said, err
}
