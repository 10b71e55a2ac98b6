package execreaper

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Containers returns the processes in the containers' cgroups and below them, in
// whichever hierarchy, by container and without their commands. One that ends
// meanwhile is left out. Nothing that is read waits for a process.
func (f Procfs) Containers(ids []string) (map[string][]Process, error) {
	dir, err := os.Open(f.path())
	if err != nil {
		return nil, fmt.Errorf("list the node's processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the node's processes in %s: %w", dir.Name(), err)
	}
	wanted, all := make(map[string]bool, len(ids)), make(map[string][]Process, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		in := f.inside(pid, wanted)
		if len(in) == 0 {
			continue
		}
		if p, ok := f.process(pid); ok {
			for _, id := range in {
				all[id] = append(all[id], p)
			}
		}
	}
	return all, nil
}

// How much is read of commands, in bytes. A process says itself where its command
// lies (PR_SET_MM_MAP), and may say that all of its memory is.
const (
	// mostCommand is of one process, enough to tell that it is too long to be looked at.
	mostCommand = longest + mostOfOne + 1
	// mostCommands is of one container's processes.
	mostCommands = 4 << 20
)

// Commands reads those of the processes of one container that were started from
// outside. Of one that has ended meanwhile nothing is known.
//
// The kernel reads them in the process's memory, which may be a file of a file system
// in user space: it may take as long as whoever serves that likes.
func (f Procfs) Commands(all []Process) {
	argv, left := map[int][]string{}, mostCommands
	for _, p := range roots(all, f.Level()) {
		if left < mostCommand {
			break
		}
		raw := f.head(mostCommand, strconv.Itoa(p.PID), "cmdline")
		left -= len(raw)
		if len(raw) > 0 {
			argv[p.PID] = strings.SplitN(strings.TrimSuffix(string(raw), "\x00"), "\x00", mostOfOne+1)
		}
	}
	for i := range all {
		all[i].Argv = argv[all[i].PID]
	}
}

// head reads the first limit bytes of a file, fewer when it cannot.
func (f Procfs) head(limit int64, parts ...string) []byte {
	file, err := os.Open(f.path(parts...))
	if err != nil {
		return nil
	}
	defer file.Close()
	raw, _ := io.ReadAll(io.LimitReader(file, limit)) // what came before an error is as good
	return raw
}

// inside says in which of the containers' cgroups the process is now.
func (f Procfs) inside(pid int, wanted map[string]bool) (ids []string) {
	if f.Member != nil {
		for id := range wanted {
			if f.Member(pid, id) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	text, err := os.ReadFile(f.path(strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil // it has ended
	}
	return members(text, wanted)
}

// members looks for the cgroups that a runtime has made for containers: the id, or
// "<prefix>-<id>.scope" where systemd makes it. CRI-O's monitor has one of its own,
// which is not the container's.
func members(text []byte, wanted map[string]bool) (ids []string) {
	found := func(id string) {
		if id != "" && wanted[id] && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for line := range bytes.Lines(text) {
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(":"), 3)
		if len(fields) != 3 {
			continue
		}
		for part := range strings.SplitSeq(string(fields[2]), "/") {
			found(part)
			unit, ok := strings.CutSuffix(part, ".scope")
			if !ok || strings.HasPrefix(unit, "crio-conmon-") {
				continue
			}
			for rest, more := unit, true; more; {
				if _, rest, more = strings.Cut(rest, "-"); more {
					found(rest)
				}
			}
		}
	}
	return ids
}
