package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is one range of this process's memory that shows a part of a file.
type mapping struct {
	start, end uintptr
	file       string
	readOnly   bool
	executable bool
	resident   uint64 // kB that are mapped
	anonymous  uint64 // kB of them that are no longer as in the file
}

// releaseCode lets go of the pages of the executable, most of which only the
// start needed. They stay in the kernel's cache of the file: what is used again
// is mapped again in microseconds, and the rest may be had by others. A range
// with pages that differ from the file, as relocations do, stays.
func releaseCode() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer file.Close()
	all, err := readMappings(file)
	if err != nil {
		return err
	}
	for _, m := range all {
		if !m.comesBack(exe) {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			err = errors.Join(err, fmt.Errorf("madvise %x-%x of %s: %w", m.start, m.end, exe, errno))
		}
	}
	return err
}

// comesBack says that what the range shows can be read from the file again.
func (m mapping) comesBack(exe string) bool {
	return m.file == exe && m.readOnly && m.anonymous == 0
}

// readMappings reads what proc(5) says of /proc/pid/smaps.
func readMappings(r io.Reader) ([]mapping, error) {
	var out []mapping
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		if name, ok := strings.CutSuffix(fields[0], ":"); ok {
			if name != "Rss" && name != "Anonymous" || len(fields) < 2 || len(out) == 0 {
				continue
			}
			kB, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("smaps: %q: %w", lines.Text(), err)
			}
			if last := &out[len(out)-1]; name == "Rss" {
				last.resident = kB
			} else {
				last.anonymous = kB
			}
			continue
		}
		m, err := parseMapping(lines.Text())
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, lines.Err()
}

// parseMapping reads "start-end perms offset dev inode file".
func parseMapping(line string) (mapping, error) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return mapping{}, fmt.Errorf("smaps: %q is not a mapping", line)
	}
	from, to, _ := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("smaps: %q: %w", line, err)
	}
	end, err := strconv.ParseUint(to, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("smaps: %q: %w", line, err)
	}
	m := mapping{start: uintptr(start), end: uintptr(end), executable: strings.Contains(fields[1], "x")}
	m.readOnly = strings.HasPrefix(fields[1], "r") && !strings.Contains(fields[1], "w")
	if len(fields) > 5 {
		m.file = strings.Join(fields[5:], " ")
	}
	return m, nil
}
