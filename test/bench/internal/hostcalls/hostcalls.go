// Package hostcalls counts how often processes, and all that they start, ask the kernel to
// mount and to unmount. It owns an instance of the kernel's tracer for as long as it counts,
// and must never count a call of anybody else, or change what others trace.
package hostcalls

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kinds are the calls that are counted, by the kernel's events.
var kinds = []string{"mount", "umount", "move_mount", "open_tree", "fsopen", "fsmount", "mount_setattr"}

// bufferKiB is how much of the calls each processor keeps: some ten thousand.
const bufferKiB = 4096

// Counter counts.
type Counter struct{ root, instance string }

// New begins to count the calls of processes, by their ids, and of what they start from now
// on. It needs an empty directory, in which it mounts the tracer's files.
func New(dir string, pids []int) (*Counter, error) {
	if err := unix.Mount("tracefs", dir, "tracefs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount the kernel's tracer: %w", err)
	}
	c := &Counter{root: dir, instance: filepath.Join(dir, "instances", "polylet-bench-"+strconv.Itoa(os.Getpid()))}
	if err := c.begin(pids); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Counter) begin(pids []int) error {
	if err := os.Mkdir(c.instance, 0o750); err != nil {
		return err
	}
	var threads []string
	for _, pid := range pids {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		for _, e := range entries {
			threads = append(threads, e.Name())
		}
	}
	settings := [][2]string{{"buffer_size_kb", strconv.Itoa(bufferKiB)}, {"options/event-fork", "1"}, {"set_event_pid", strings.Join(threads, " ")}}
	for _, kind := range kinds {
		settings = append(settings, [2]string{"events/syscalls/sys_enter_" + kind + "/enable", "1"})
	}
	for _, s := range settings {
		if err := os.WriteFile(filepath.Join(c.instance, s[0]), []byte(s[1]), 0); err != nil {
			return fmt.Errorf("trace calls of the kernel: %w", err)
		}
	}
	return nil
}

// Calls is how many there were until now, by their names.
func (c *Counter) Calls() (map[string]int, error) {
	text, err := os.ReadFile(filepath.Join(c.instance, "trace"))
	if err != nil {
		return nil, err
	}
	return count(text)
}

// Close ends it, and leaves nothing behind; that of no Counter does nothing.
func (c *Counter) Close() error {
	if c == nil {
		return nil
	}
	var failed []error
	if err := os.Remove(c.instance); err != nil && !errors.Is(err, os.ErrNotExist) {
		failed = append(failed, err)
	}
	return errors.Join(append(failed, unix.Unmount(c.root, unix.MNT_DETACH))...)
}

// count counts the lines of a trace by the call.
func count(trace []byte) (map[string]int, error) {
	calls := map[string]int{}
	for _, kind := range kinds {
		calls[kind] = 0
	}
	for raw := range bytes.Lines(trace) {
		line := string(raw)
		if _, of, is := strings.Cut(line, "entries-in-buffer/entries-written: "); is {
			kept, written, _ := strings.Cut(strings.Fields(of)[0], "/")
			if kept != written {
				return nil, fmt.Errorf("the kernel has kept %s of %s calls; count fewer pods", kept, written)
			}
		}
		for _, kind := range kinds {
			if strings.Contains(line, ": sys_"+kind+"(") {
				calls[kind]++
			}
		}
	}
	return calls, nil
}
