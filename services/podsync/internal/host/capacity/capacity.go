// Package capacity reads how much the machine has for its processes.
//
// It owns the kernel's files that say so. It must never decide how much of that
// pods get, and never keep an answer.
package capacity

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// Memory is the machine's memory in bytes; zero when it cannot be read.
func Memory() int64 { return memory("/proc/meminfo") }

func memory(path string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Processes is how many processes the kernel allows; zero when it does not say.
func Processes() int64 { return processes("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max") }

func processes(pidMax, threadsMax string) int64 {
	pids, err := readNumber(pidMax)
	if err != nil {
		return 0
	}
	if threads, err := readNumber(threadsMax); err == nil {
		return min(pids, threads)
	}
	return pids
}

func readNumber(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}
