// Package process reads what /proc says of processes: network counters, open
// files, limits, and the machine's process numbers. It must never write, and
// keeps nothing between calls.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cadvisor/lib/model"
)

// Proc is a mounted proc filesystem, "/proc" on a node.
type Proc string

// ignoredInterfaces are those whose traffic is counted elsewhere too; the same
// that cAdvisor leaves out.
var ignoredInterfaces = [...]string{"lo", "veth", "docker", "nerdctl"}

// Network reads the interfaces of the network namespace that a process is in,
// in the kernel's order.
func (p Proc) Network(pid int) ([]model.InterfaceStats, error) {
	file := filepath.Join(string(p), strconv.Itoa(pid), "net", "dev")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the interfaces of process %d: %w", pid, err)
	}
	return parseNetDev(data), nil
}

func parseNetDev(data []byte) []model.InterfaceStats {
	var out []model.InterfaceStats
	for line := range bytes.Lines(data) {
		name, rest, found := bytes.Cut(line, []byte{':'})
		fields := bytes.Fields(rest)
		if !found || len(fields) < 16 {
			continue // One of the two header lines, or not a line we know.
		}
		s := model.InterfaceStats{Name: interfaceName(bytes.TrimSpace(name))}
		if ignored(s.Name) {
			continue
		}
		for i, target := range []*uint64{&s.RxBytes, &s.RxPackets, &s.RxErrors, &s.RxDropped} {
			*target = number(fields[i])
		}
		for i, target := range []*uint64{&s.TxBytes, &s.TxPackets, &s.TxErrors, &s.TxDropped} {
			*target = number(fields[8+i])
		}
		out = append(out, s)
	}
	return out
}

// interfaceName is a name as text: the kernel takes any byte but blanks, '/' and ':',
// and a metric with a label that is no UTF-8 spoils the whole document it is in.
// Each wrong byte is shown by its number, so that two names do not become one.
func interfaceName(name []byte) string {
	if utf8.Valid(name) {
		return string(name)
	}
	var text strings.Builder
	for len(name) > 0 {
		r, n := utf8.DecodeRune(name)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&text, `\x%02x`, name[0])
		} else {
			text.Write(name[:n])
		}
		name = name[n:]
	}
	return text.String()
}

func ignored(name string) bool {
	for _, prefix := range ignoredInterfaces {
		if strings.HasPrefix(strings.ToLower(name), prefix) {
			return true
		}
	}
	return false
}

func number(b []byte) uint64 {
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// namesAtOnce is how many names of open files are read at once: a process may have
// millions.
const namesAtOnce = 1024

// Files counts the open files of processes, and how many of them are sockets, until
// ctx is done. A process that ended meanwhile counts nothing.
func (p Proc) Files(ctx context.Context, pids []int) (files, sockets uint64) {
	for _, pid := range pids {
		if ctx.Err() != nil {
			return files, sockets
		}
		n, s := p.filesOf(ctx, pid)
		files, sockets = files+n, sockets+s
	}
	return files, sockets
}

func (p Proc) filesOf(ctx context.Context, pid int) (files, sockets uint64) {
	f, err := os.Open(filepath.Join(string(p), strconv.Itoa(pid), "fd"))
	if err != nil {
		return 0, 0
	}
	defer f.Close() //nolint:errcheck // It was only read.
	for ctx.Err() == nil {
		names, err := f.Readdirnames(namesAtOnce)
		files += uint64(len(names))
		for _, name := range names {
			if isSocket(f, name) {
				sockets++
			}
		}
		if err != nil {
			return files, sockets // All were read, or it has ended.
		}
	}
	return files, sockets
}

// OpenFilesLimit returns the soft limit of open files of a process; -1 is no limit.
func (p Proc) OpenFilesLimit(pid int) (int64, error) {
	file := filepath.Join(string(p), strconv.Itoa(pid), "limits")
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read the limits of process %d: %w", pid, err)
	}
	for line := range bytes.Lines(data) {
		rest, found := bytes.CutPrefix(line, []byte("Max open files"))
		fields := bytes.Fields(rest)
		if !found || len(fields) == 0 {
			continue
		}
		if string(fields[0]) == "unlimited" {
			return -1, nil
		}
		return strconv.ParseInt(string(fields[0]), 10, 64)
	}
	return 0, fmt.Errorf("find \"Max open files\" in %s: no such line", file)
}

// Numbers are the machine's process numbers.
type Numbers struct {
	// Running is how many processes and threads there are.
	Running int64
	// Max is how many there may be: the lower of kernel.pid_max and kernel.threads-max.
	Max int64
}

// Numbers reads them.
func (p Proc) Numbers() (Numbers, error) {
	pidMax, err1 := p.sysctl("kernel/pid_max")
	threadsMax, err2 := p.sysctl("kernel/threads-max")
	data, err3 := os.ReadFile(filepath.Join(string(p), "loadavg"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return Numbers{}, fmt.Errorf("read the process numbers: %w", err)
	}
	fields := strings.Fields(string(data))
	if len(fields) < 4 {
		return Numbers{}, fmt.Errorf("parse %s/loadavg: %q has fewer than four fields", p, data)
	}
	_, total, _ := strings.Cut(fields[3], "/")
	running, err := strconv.ParseInt(total, 10, 64)
	if err != nil {
		return Numbers{}, fmt.Errorf("parse %s/loadavg: %w", p, err)
	}
	return Numbers{Running: running, Max: min(pidMax, threadsMax)}, nil
}

func (p Proc) sysctl(name string) (int64, error) {
	data, err := os.ReadFile(filepath.Join(string(p), "sys", name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// BootSeconds is when the machine started, as Unix time: btime of /proc/stat.
func (p Proc) BootSeconds() (int64, error) {
	data, err := os.ReadFile(filepath.Join(string(p), "stat"))
	if err != nil {
		return 0, fmt.Errorf("read the boot time: %w", err)
	}
	for line := range bytes.Lines(data) {
		if rest, found := bytes.CutPrefix(line, []byte("btime ")); found {
			return strconv.ParseInt(string(bytes.TrimSpace(rest)), 10, 64)
		}
	}
	return 0, fmt.Errorf("find btime in %s/stat: no such line", p)
}
