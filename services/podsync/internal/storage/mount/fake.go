package mount

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Fake keeps mounts in memory only: files land in the directory below, and are
// removed with the mount as those of a tmpfs are. Safe for concurrent use.
type Fake struct {
	// Fail, when set, is asked before each call ("tmpfs", "huge", "bind",
	// "device", "remote", "resize", "restrict", "unmount", "share", "fullness") and makes it fail. Set it before use.
	Fail func(call, target string) error

	mu      sync.Mutex
	mounts  map[string]string
	options map[string][]string
	served  map[string]bool
}

// NewFake returns an empty Fake.
func NewFake() *Fake {
	return &Fake{mounts: map[string]string{}, options: map[string][]string{}, served: map[string]bool{}}
}

// Mounts lists the mount points, sorted.
func (f *Fake) Mounts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]string, 0, len(f.mounts))
	for target := range f.mounts {
		list = append(list, target)
	}
	slices.Sort(list)
	return list
}

// Source is what is mounted on target: "tmpfs", "hugetlbfs" or the source of a
// bind mount; empty when nothing is.
func (f *Fake) Source(target string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mounts[target]
}

func (f *Fake) mount(call, source, target string) error {
	if f.Fail != nil {
		if err := f.Fail(call, target); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(target); err != nil {
		return fmt.Errorf("mount on %s: %w", target, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mounts[target] = source
	return nil
}

// Tmpfs keeps a tmpfs in mind.
func (f *Fake) Tmpfs(target string, _ int64) error { return f.mount("tmpfs", "tmpfs", target) }

// Huge keeps a hugetlbfs in mind.
func (f *Fake) Huge(target string, _, _ int64) error { return f.mount("huge", "hugetlbfs", target) }

// Bind keeps a bind mount in mind.
func (f *Fake) Bind(source, target string) error {
	if err := f.mount("bind", source, target); err != nil {
		return err
	}
	from := source
	if of, err := os.Readlink(source); err == nil { // as /proc/self/fd/N
		from = of
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for served := range f.served {
		if from == served || strings.HasPrefix(from, served+"/") {
			f.served[target] = true
			break
		}
	}
	return nil
}

// Device keeps the device and its options in mind.
func (f *Fake) Device(_ context.Context, device, target, _ string, options []string) error {
	if err := f.mount("device", device, target); err != nil {
		return err
	}
	f.keepOptions(target, options)
	return nil
}

func (f *Fake) keepOptions(target string, options []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.options[target] = slices.Clone(options)
}

// Remote keeps the mount and its options in mind.
func (f *Fake) Remote(_ context.Context, source, target, filesystem string, options []string) error {
	if err := f.mount("remote", filesystem+" "+source, target); err != nil {
		return err
	}
	f.keepOptions(target, options)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.served[target] = true
	return nil
}

// Served are the mounts of servers, and what is bound of them.
func (f *Fake) Served(dir string) (map[string]bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found := map[string]bool{}
	for target := range f.served {
		if target == dir || strings.HasPrefix(target, dir+"/") {
			found[target] = true
		}
	}
	return found, nil
}

// AskedAt is the mount of a server that a path lies on.
func (f *Fake) AskedAt(path string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for at := range f.served {
		if path == at || strings.HasPrefix(path, at+"/") {
			return at, nil
		}
	}
	return "", nil
}

// Reach opens what lies on no mount of a server.
func (f *Fake) Reach(path string) (*os.File, string, error) {
	if at, err := f.AskedAt(path); at != "" || err != nil {
		return nil, at, err
	}
	found, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	return found, "", err
}

// Statfs is that of 10 bytes of which 4 are used, wherever something is mounted; Fail is
// asked as "fullness".
func (f *Fake) Statfs(_ context.Context, path string) (unix.Statfs_t, error) {
	if f.Fail != nil {
		if err := f.Fail("fullness", path); err != nil {
			return unix.Statfs_t{}, err
		}
	}
	if f.Source(path) == "" {
		return unix.Statfs_t{}, fmt.Errorf("nothing is mounted on %s", path)
	}
	return unix.Statfs_t{Bsize: 1, Blocks: 10, Bfree: 6, Bavail: 5, Files: 3, Ffree: 1}, nil
}

// UnmountRemote is Unmount.
func (f *Fake) UnmountRemote(_ context.Context, target string) error { return f.Unmount(target) }

// Resize finds the filesystem as large as it can be.
func (f *Fake) Resize(_ context.Context, _, target string) error {
	if f.Fail != nil {
		return f.Fail("resize", target)
	}
	return nil
}

// Restrict keeps the options in mind.
func (f *Fake) Restrict(target string, options []string) error {
	if f.Fail != nil {
		if err := f.Fail("restrict", target); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.options[target] = slices.Clone(options)
	return CheckRestrictions(options)
}

// Options are those that a mount was given.
func (f *Fake) Options(target string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.options[target]
}

// Release finds no loop device.
func (f *Fake) Release(string) error { return nil }

// Unmount forgets a mount, with the content of a tmpfs.
func (f *Fake) Unmount(target string) error {
	if f.Fail != nil {
		if err := f.Fail("unmount", target); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	source := f.mounts[target]
	delete(f.mounts, target)
	delete(f.options, target)
	delete(f.served, target)
	if source != "tmpfs" && source != "hugetlbfs" {
		return nil
	}
	entries, err := os.ReadDir(target)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(target, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Share changes nothing; Fail is asked as "share".
func (f *Fake) Share(dir string) (bool, error) {
	if f.Fail != nil {
		return false, f.Fail("share", dir)
	}
	return false, nil
}

// Reboot is what a restart of the machine leaves: no mount, and nothing of what
// lay in a tmpfs.
func (f *Fake) Reboot() error {
	for _, target := range f.Mounts() {
		if err := f.Unmount(target); err != nil {
			return err
		}
	}
	return nil
}

// Mounted says whether target is kept in mind.
func (f *Fake) Mounted(target string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.mounts[target]
	return ok, nil
}
