package browser

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endsWithin is how long killed processes may take to be gone.
const endsWithin = 30 * time.Second

// endAll kills what a Chromium has left: its helper processes live on for a
// moment when the browser has ended, and write into its profile. They are known
// by the browser's process group, or by the profile in their arguments.
func endAll(group int, profile string) {
	for end := time.Now().Add(endsWithin); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left := remaining(group, profile)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
	}
}

// remaining are the processes of the group or of the profile that have not ended.
func remaining(group int, profile string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it has ended
		}
		// After the name in brackets: state, parent, group.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 3 || fields[0] == "Z" || fields[0] == "X" {
			continue
		}
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if fields[2] == strconv.Itoa(group) || bytes.Contains(args, []byte(profile)) {
			pids = append(pids, pid)
		}
	}
	return pids
}
