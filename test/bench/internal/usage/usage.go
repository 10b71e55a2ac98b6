// Package usage reads what processes use of the CPU and hold in memory, from the kernel. It
// must never ask the processes themselves.
package usage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/polylet/polylet/test/harness/node"
)

// clockTicks is the unit of /proc/PID/stat's times; Linux has 100 a second on
// every architecture that Go supports.
const clockTicks = 100

// Usage is what the agent's processes use together.
type Usage struct {
	CPU float64 // milliseconds since their start
	PSS float64 // MiB
}

// Of reads what the node's processes use.
func Of(n *node.Node) (Usage, error) {
	var total Usage
	for _, p := range n.Processes {
		cpu, err := CPUOf(p.Pid())
		if err != nil {
			return total, fmt.Errorf("read the CPU time of %s: %w", p.Name(), err)
		}
		held, err := PagesOf(p.Pid())
		if err != nil {
			return total, fmt.Errorf("read the memory of %s: %w", p.Name(), err)
		}
		total.CPU += cpu
		total.PSS += held.PSS
	}
	return total, nil
}

// CPUOfEach is the CPU time of each of the node's processes, in milliseconds.
func CPUOfEach(n *node.Node) (map[string]float64, error) {
	used := map[string]float64{}
	for name, p := range n.Processes {
		cpu, err := CPUOf(p.Pid())
		if err != nil {
			return nil, fmt.Errorf("read the CPU time of %s: %w", name, err)
		}
		used[name] = cpu
	}
	return used, nil
}

// CPUOf counts the process's own time and that of its ended children.
func CPUOf(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("short stat line %q", data)
	}
	var ticks int64
	for _, f := range fields[11:15] { // utime stime cutime cstime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return float64(ticks) * 1000 / clockTicks, nil
}

// CPUOfCgroup is what a cgroup and all below it have used, in milliseconds, ended processes
// too.
func CPUOfCgroup(path string) (float64, error) {
	data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuacct", path, "cpuacct.usage"))
	if err == nil {
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
		return ns / 1e6, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if data, err = os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cpu.stat")); err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, "usage_usec "); found {
			us, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return us / 1e3, err
		}
	}
	return 0, fmt.Errorf("no usage_usec in %q", data)
}

// Pages is what a process holds, in MiB; pages that it shares count by its share.
type Pages struct{ PSS, Anon, File float64 }

// PagesOf reads what a process holds.
func PagesOf(pid int) (Pages, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return Pages{}, err
	}
	return parsePages(data)
}

func parsePages(rollup []byte) (Pages, error) {
	var p Pages
	fields := map[string]*float64{"Pss:": &p.PSS, "Pss_Anon:": &p.Anon, "Pss_File:": &p.File}
	for line := range strings.Lines(string(rollup)) {
		words := strings.Fields(line)
		if len(words) < 2 || fields[words[0]] == nil {
			continue
		}
		kib, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return p, fmt.Errorf("line %q: %w", line, err)
		}
		*fields[words[0]] = kib / 1024
		delete(fields, words[0])
	}
	if len(fields) > 0 {
		return p, fmt.Errorf("no Pss lines in %q", rollup)
	}
	return p, nil
}
