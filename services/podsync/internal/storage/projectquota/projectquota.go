// Package projectquota has a filesystem count what lies in a directory, by a project of the
// directory's own: all that is made in it belongs to that, until it is gone and nobody holds
// it open any more.
//
// It owns which project a directory is given, and that no two share one. What is counted is a
// hint: who owns a file on the same filesystem may give it any project, and so have more counted
// for another's directory, and less. It must never limit
// what a project may use, run a program, write a file of an administrator's, change a
// directory that has a project of somebody else's or something in it, or reach what is
// mounted on a directory instead of that.
// Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1029-ephemeral-storage-quotas
package projectquota

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

const (
	// First is the lowest project that is given; those below are for people.
	First = 1<<20 + 1
	// most is how many are given; the lowest that is free first, as XFS keeps a record of
	// each that ever was.
	most = 1 << 16
	// tries is how many are asked about for one directory: whoever owns files may give them
	// projects, and so have any number of these taken.
	tries = 1 << 10
)

// ErrNone says that nothing is counted by projects where a directory lies.
var ErrNone = errors.New("the filesystem does not count by project quotas (mount XFS with prjquota, or ext4 with the features quota and project)")

// Usage is what a project has.
type Usage struct{ Bytes, Inodes uint64 }

// Quotas gives directories projects and says what is in them. Safe for concurrent use.
type Quotas struct {
	kernel kernel
	// files name projects of an administrator's.
	files []string

	mu sync.Mutex
	// taking are the projects that are being given.
	taking map[uint32]struct{}
	// from is how far above First the search begins: those below were taken.
	from uint32
}

// New returns Quotas; it touches nothing.
func New() *Quotas {
	return &Quotas{kernel: linux{}, files: []string{"/etc/projects", "/etc/projid"}, taking: map[uint32]struct{}{}}
}

// Give gives an empty directory a project of its own. One that has such a project already, as
// after a crash, keeps it. The error is ErrNone where nothing is counted.
func (q *Quotas) Give(path string) (id uint32, err error) {
	dir, err := open(path)
	if err != nil {
		return 0, fmt.Errorf("give %s a project: %w", path, err)
	}
	defer dir.Close()
	if id, err = q.give(dir); err != nil {
		return 0, fmt.Errorf("give %s a project: %w", path, err)
	}
	return id, nil
}

func (q *Quotas) give(dir *os.File) (uint32, error) {
	if _, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		return 0, errors.Join(errors.New("there is something in it already"), err)
	}
	has, err := q.kernel.attributes(dir)
	if err != nil {
		return 0, err
	}
	named, err := namedIn(q.files)
	if err != nil {
		return 0, err
	}
	if has.project == 0 {
		return q.free(dir, has, named)
	}
	if has.project < First || named[has.project] || !has.inherited {
		return 0, fmt.Errorf("it has project %d, of somebody else's", has.project)
	}
	return has.project, q.alone(dir, has.project)
}

// free gives it a project that nobody has.
func (q *Quotas) free(dir *os.File, has attributes, named map[uint32]bool) (uint32, error) {
	at := q.begin()
	for range tries {
		id := q.take(at, named)
		free, err := q.is(dir, id)
		if err == nil && free {
			err = q.set(dir, has, id)
		}
		q.leave(id)
		if err != nil || free {
			return id, err
		}
		at = id + 1
	}
	q.begun(at)
	return 0, fmt.Errorf("the %d projects before %d are all in use", tries, at)
}

// begin is where the search begins.
func (q *Quotas) begin() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return First + q.from
}

// begun has the next search begin where this one has ended, and at the lowest again in time.
func (q *Quotas) begun(at uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.from = (at - First) % most
}

// take is the next project from one on that nobody has named and that is not being given.
func (q *Quotas) take(at uint32, named map[uint32]bool) uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	id := at
	for _, taken := q.taking[id]; taken || named[id]; _, taken = q.taking[id] {
		id++
	}
	q.taking[id] = struct{}{}
	return id
}

// leave says that a project has been given, or not: what has it counts from now on.
func (q *Quotas) leave(id uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.taking, id)
}

// is says whether a project is nobody's.
func (q *Quotas) is(dir *os.File, id uint32) (free bool, err error) {
	has, err := q.kernel.quota(dir, id)
	return has == quota{}, err
}

// set gives the directory a project. One that is not counted then is taken from it.
func (q *Quotas) set(dir *os.File, had attributes, id uint32) error {
	if err := q.kernel.set(dir, attributes{project: id, inherited: true}); err != nil {
		return err
	}
	err := q.alone(dir, id)
	if err != nil {
		err = errors.Join(err, q.kernel.set(dir, had))
	}
	return err
}

// alone wants the directory to be all that a project has.
func (q *Quotas) alone(dir *os.File, id uint32) error {
	has, err := q.kernel.quota(dir, id)
	switch {
	case err != nil:
		return err
	case has.Inodes == 0:
		return ErrNone
	case has.Inodes > 1 || has.limited:
		return fmt.Errorf("project %d is somebody else's", id)
	}
	return nil
}

// Usage is what is counted of a directory, which has to have this project. The directory
// itself counts, too, as whoever walks it counts it.
func (q *Quotas) Usage(path string, id uint32) (Usage, error) {
	dir, err := open(path)
	if err != nil {
		return Usage{}, fmt.Errorf("measure %s by its project: %w", path, err)
	}
	defer dir.Close()
	has, err := q.kernel.attributes(dir)
	if err == nil && (has.project != id || !has.inherited) {
		err = fmt.Errorf("it has project %d, and was given %d", has.project, id)
	}
	var counted quota
	if err == nil {
		counted, err = q.kernel.quota(dir, id)
	}
	if err == nil && counted.Inodes == 0 {
		err = ErrNone
	}
	if err != nil {
		return Usage{}, fmt.Errorf("measure %s by its project: %w", path, err)
	}
	return counted.Usage, nil
}
