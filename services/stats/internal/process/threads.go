package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// tables has look called with the directory of a process, and then with those of its threads
// that have open files of their own, each as soon as it is told apart: whoever looks at the
// process alone sees those of its first thread, and nothing when that has ended, and whoever
// tells all apart first may have no time left to read one. It ends when ctx is done or a look
// says that it did not see all. all: there was time to look at each thread.
func (p Proc) tables(ctx context.Context, pid int, look func(dir string) (all bool)) (all bool) {
	dir := filepath.Join(string(p), strconv.Itoa(pid))
	if ctx.Err() != nil || !look(dir) {
		return false
	}
	var st unix.Stat_t
	tasks := filepath.Join(dir, "task")
	if err := unix.Stat(tasks, &st); err != nil || st.Nlink <= 3 { // It has one link for each.
		return true
	}
	f, err := os.Open(tasks)
	if err != nil {
		return true
	}
	defer f.Close() //nolint:errcheck // It was only read.
	seen, numbers := []int{pid}, p.own()
	for ctx.Err() == nil {
		names, err := f.Readdirnames(namesAtOnce)
		for _, name := range names {
			tid, convErr := strconv.Atoi(name)
			if convErr != nil || tid == pid {
				continue
			}
			if ctx.Err() != nil {
				return false
			}
			shared := false
			if numbers {
				seen, shared = share(seen, tid)
			}
			if !shared && !look(filepath.Join(tasks, name)) {
				return false
			}
		}
		if err != nil {
			return true // All were looked at, or it has ended.
		}
	}
	return false
}

// own says whether process numbers there are those that this process is told by the kernel.
func (p Proc) own() bool {
	self, err := os.Readlink(filepath.Join(string(p), "self"))
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// share says whether a thread has the same open files as one of those that were seen, and
// adds it to them if it does not. seen is in the kernel's order. Where the kernel does not
// say, it does not: they are then read again.
// Source: https://man7.org/linux/man-pages/man2/kcmp.2.html
func share(seen []int, tid int) (all []int, shared bool) {
	const files = 2 // KCMP_FILES
	unknown := false
	at, shared := slices.BinarySearchFunc(seen, tid, func(a, b int) int {
		order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), files, 0, 0, 0)
		if errno != 0 || order > 2 {
			unknown = true
			return 1
		}
		return []int{0, -1, 1}[order]
	})
	if shared || unknown {
		return seen, shared && !unknown
	}
	return slices.Insert(seen, at, tid), false
}

// living is the directory of a process, or of another of its threads when the first has
// ended: of that one nothing is told any more.
func (p Proc) living(pid int) string {
	dir := filepath.Join(string(p), strconv.Itoa(pid))
	if _, err := DeviceOf(filepath.Join(dir, "root")); err == nil {
		return dir
	}
	f, err := os.Open(filepath.Join(dir, "task"))
	if err != nil {
		return dir
	}
	defer f.Close()                       //nolint:errcheck // It was only read.
	names, _ := f.Readdirnames(mostTried) //nolint:errcheck // Those that are there.
	for _, name := range names {
		thread := filepath.Join(dir, "task", name)
		if _, err := DeviceOf(filepath.Join(thread, "root")); err == nil {
			return thread
		}
	}
	return dir
}

// mostTried is how many threads of a process are tried whose first has ended.
const mostTried = 16
