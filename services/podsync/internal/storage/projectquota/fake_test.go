package projectquota

import (
	"os"
	"sync"
	"testing"
)

// disk is a filesystem that counts by projects; the directories on it are real ones.
type disk struct {
	mu   sync.Mutex
	dirs map[string]attributes
	// counted is what there is of a project beside its directories.
	counted map[uint32]quota
	// off: nothing is counted. deaf: it is, and not what gets a project now.
	off, deaf bool
	sets      int
	// meet has a project set when quotas were asked for of so many directories; nil does not.
	meet  *sync.WaitGroup
	asked map[string]bool
}

func (d *disk) attributes(dir *os.File) (attributes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dirs[dir.Name()], nil
}

func (d *disk) set(dir *os.File, a attributes) error {
	if d.meet != nil {
		d.meet.Wait()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sets++
	d.dirs[dir.Name()] = a
	return nil
}

func (d *disk) quota(dir *os.File, id uint32) (quota, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.meet != nil && !d.asked[dir.Name()] {
		d.asked[dir.Name()] = true
		defer d.meet.Done()
	}
	if d.off {
		return quota{}, ErrNone
	}
	out := d.counted[id]
	for _, a := range d.dirs {
		if a.project == id && !d.deaf {
			out.Bytes, out.Inodes = out.Bytes+4096, out.Inodes+1
		}
	}
	return out, nil
}

// onDisk are Quotas on such a filesystem, and files of an administrator's.
func onDisk(t *testing.T) (*Quotas, *disk, func(name, text string)) {
	t.Helper()
	etc := t.TempDir()
	d := &disk{dirs: map[string]attributes{}, counted: map[uint32]quota{}, asked: map[string]bool{}}
	q := New()
	q.kernel, q.files = d, []string{etc + "/projects", etc + "/projid"}
	return q, d, func(name, text string) {
		if err := os.WriteFile(etc+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
