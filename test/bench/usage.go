package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// clockTicks is the unit of /proc/PID/stat's times; Linux has 100 a second on
// every architecture that Go supports.
const clockTicks = 100

// usage is what the agent's processes use together.
type usage struct {
	cpu float64 // milliseconds since their start
	pss float64 // MiB
}

func usageOf(st *stage) (usage, error) {
	var total usage
	for _, p := range st.node.Processes {
		cpu, err := cpuOf(p.Pid())
		if err != nil {
			return total, fmt.Errorf("read the CPU time of %s: %w", p.Name(), err)
		}
		held, err := pagesOf(p.Pid())
		if err != nil {
			return total, fmt.Errorf("read the memory of %s: %w", p.Name(), err)
		}
		total.cpu += cpu
		total.pss += held.pss
	}
	return total, nil
}

// cpuOf counts the process's own time and that of its ended children.
func cpuOf(pid int) (float64, error) {
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

// pages is what a process holds, in MiB; pages that it shares count by its share.
type pages struct{ pss, anon, file float64 }

func pagesOf(pid int) (pages, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return pages{}, err
	}
	return parsePages(data)
}

func parsePages(rollup []byte) (pages, error) {
	var p pages
	fields := map[string]*float64{"Pss:": &p.pss, "Pss_Anon:": &p.anon, "Pss_File:": &p.file}
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
