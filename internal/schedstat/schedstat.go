// Package schedstat owns what the kernel tells of how long processes had a processor, and
// how long they waited for one. It must never judge them by it: whoever asks does.
package schedstat

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Times are those of a process's threads together, so far: two threads that run for a
// second are two seconds.
type Times struct {
	// Ran is how long they had a processor.
	Ran time.Duration
	// Waited is how long they were ready to run and had none.
	Waited time.Duration
}

// Since is what came after before. Where that was of another process, or of threads that
// have ended since, nothing is less than zero.
func (t Times) Since(before Times) Times {
	return Times{Ran: since(t.Ran, before.Ran), Waited: since(t.Waited, before.Waited)}
}

func since(now, before time.Duration) time.Duration {
	if now < before {
		return now // the count has begun anew
	}
	return now - before
}

// Self are this process's.
func Self() Times {
	t, _ := ofThreads("/proc/self/task")
	return t
}

// OfProcess are those of the threads that a process has now; false where the kernel does
// not tell, or there is no such process.
func OfProcess(pid int) (Times, bool) {
	return ofThreads(filepath.Join("/proc", strconv.Itoa(pid), "task"))
}

// ofThreads reads a directory of threads (sched-stats in the kernel's documentation).
func ofThreads(dir string) (sum Times, known bool) {
	files, _ := filepath.Glob(filepath.Join(dir, "*", "schedstat")) // none is what an error comes to
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// How long it ran, how long it waited, how often it was given a processor.
		fields := strings.Fields(string(text))
		if len(fields) != 3 {
			continue
		}
		ran, err1 := strconv.ParseInt(fields[0], 10, 64)
		waited, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err1 == nil && err2 == nil {
			sum.Ran, sum.Waited, known = sum.Ran+time.Duration(ran), sum.Waited+time.Duration(waited), true
		}
	}
	return sum, known
}

// OfCgroup are those of the processes of a cgroup of version 2, given its directory. Of a
// cgroup the kernel tells for how long at least one thread waited, not the sum of all.
// False where it does not tell.
func OfCgroup(dir string) (Times, bool) {
	ran, ok := valueIn(filepath.Join(dir, "cpu.stat"), "usage_usec ")
	if !ok {
		return Times{}, false
	}
	waited, ok := valueIn(filepath.Join(dir, "cpu.pressure"), "some ", "total=")
	return Times{Ran: ran, Waited: waited}, ok
}

// valueIn is the number of microseconds that ends a line, behind its marks.
func valueIn(file string, marks ...string) (time.Duration, bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), marks[0]) {
			continue
		}
		_, value, found := strings.Cut(lines.Text(), marks[len(marks)-1])
		number, err := strconv.ParseInt(value, 10, 64)
		return time.Duration(number) * time.Microsecond, found && err == nil
	}
	return 0, false
}
