package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
)

const (
	// portion is how much is compressed in one go, and restFactor how many times
	// as long as that took the compressor rests then: it takes a quarter of one
	// core at most. (A thread of lesser priority would be the other way, but on
	// a busy machine one that is not scheduled holds up the garbage collector,
	// and so all of podsync.)
	portion    = 1 << 20
	restFactor = 3
)

// errGone is that a file was removed while it was compressed.
var errGone = errors.New("the file was removed meanwhile")

// job is to compress files of one log.
type job struct {
	// dir is closed by the zipper.
	dir *os.Root
	// path of the log.
	path string
	// names of the files in dir, oldest first.
	names []string
}

// zipper compresses rotated logs one after the other, in constant memory. A log
// that is rotated faster than it works loses its oldest files uncompressed.
type zipper struct {
	kick wake.Signal

	mu     sync.Mutex
	closed bool
	queue  []job // at most one of each path
	// now is the file that is being compressed: the log's path and the name.
	now [2]string
}

func newZipper() *zipper { return &zipper{kick: wake.New()} }

// add queues a job, in the place of an older one of the same log. It takes the
// directory over if it returns true.
func (z *zipper) add(j job) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.closed {
		return false
	}
	for i := range z.queue {
		if z.queue[i].path == j.path {
			_ = z.queue[i].dir.Close()
			z.queue[i] = j
			return true
		}
	}
	z.queue = append(z.queue, j)
	z.kick.Set()
	return true
}

// working tells that this file of the log is being compressed.
func (z *zipper) working(path, name string) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.now == [2]string{path, name}
}

func (z *zipper) take() (job, bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.queue) == 0 {
		return job{}, false
	}
	j := z.queue[0]
	z.queue = z.queue[1:]
	return j, true
}

func (z *zipper) set(path, name string) {
	z.mu.Lock()
	z.now = [2]string{path, name}
	z.mu.Unlock()
}

// run compresses until ctx is done.
func (z *zipper) run(ctx context.Context) {
	defer z.close()
	failed, last := false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-z.kick:
		}
		if !last {
			// The thread is for this goroutine alone and ends with it, because its I/O
			// goes last. Where no log is ever rotated there is none.
			runtime.LockOSThread()
			idleIO()
			last = true
		}
		for ctx.Err() == nil {
			j, ok := z.take()
			if !ok {
				break
			}
			err := z.do(ctx, j)
			_ = j.dir.Close()
			if err != nil && !failed && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not compress a rotated log; it stays as it is", "path", j.path)
			}
			failed = err != nil
		}
	}
}

func (z *zipper) close() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.closed = true
	for _, j := range z.queue {
		_ = j.dir.Close()
	}
	z.queue = nil
}

func (z *zipper) do(ctx context.Context, j job) error {
	defer z.set("", "")
	for _, name := range j.names {
		z.set(j.path, name)
		if err := compress(ctx, j.dir, name); err != nil && !errors.Is(err, errGone) && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("compress %s: %w", name, err)
		}
	}
	return nil
}

// compress makes name.gz of a file and removes it. Nothing is left when it fails.
func compress(ctx context.Context, dir *os.Root, name string) (err error) {
	from, err := openRegular(dir, name)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := dir.OpenFile(name+unfinished, os.O_CREATE|os.O_EXCL|os.O_WRONLY, info.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = dir.Remove(name + unfinished)
		}
	}()
	err = squeeze(ctx, to, from)
	if closed := to.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err = dir.Rename(name+unfinished, name+zipped); err != nil {
		return err
	}
	return remove(dir, name)
}

// openRegular opens a file that is no link and nothing that blocks.
func openRegular(dir *os.Root, name string) (*os.File, error) {
	want, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !want.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file: %w", name, os.ErrInvalid)
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if got, err := f.Stat(); err != nil || !os.SameFile(want, got) {
		_ = f.Close()
		return nil, fmt.Errorf("%s was exchanged while it was opened: %w", name, os.ErrInvalid)
	}
	return f, nil
}

// squeeze compresses from into to, slowly, and stops when from has been removed.
func squeeze(ctx context.Context, to io.Writer, from *os.File) error {
	z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	for {
		began := time.Now()
		_, err := io.CopyN(z, from, portion)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(restFactor * time.Since(began)):
		}
		if removed(from) {
			return errGone
		}
	}
	if removed(from) {
		return errGone
	}
	return z.Close()
}

// removed tells that a file has no name any more.
func removed(f *os.File) bool {
	var st unix.Stat_t
	raw, err := f.SyscallConn()
	if err != nil {
		return true
	}
	var stat error
	if err := raw.Control(func(fd uintptr) { stat = unix.Fstat(int(fd), &st) }); err != nil {
		return true
	}
	return stat != nil || st.Nlink == 0
}

// idleIO puts the calling thread's I/O behind everybody else's, where the disk's
// scheduler knows of that.
func idleIO() {
	const (
		thread    = 1 // IOPRIO_WHO_PROCESS, of which 0 is the calling thread
		classIdle = 3 << 13
	)
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, thread, 0, classIdle)
}
