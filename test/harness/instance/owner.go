package instance

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// machines is the PID namespace of the machine, from which those of all others are seen.
const machines = "pid:[4026531836]"

// ownerAlive tells whether the recorded owner still runs; its start time guards
// against a reused pid.
func (i *Instance) ownerAlive() bool {
	if ours, err := namespaceOf("self"); err != nil || i.OwnerNamespace != "" && i.OwnerNamespace != ours {
		return err != nil || livesElsewhere(i.OwnerNamespace, ours, inNamespace)
	}
	start, err := startTime(i.OwnerPid)
	return err == nil && start == i.OwnerStart
}

// livesElsewhere tells whether a process of another PID namespace than ours may still run:
// from the machine's all are seen, and from any other none that is not its own.
func livesElsewhere(theirs, ours string, seen func(string) bool) bool {
	return ours != machines || seen(theirs)
}

// inNamespace tells whether a process is seen that lives in the PID namespace.
func inNamespace(namespace string) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if theirs, err := namespaceOf(e.Name()); err == nil && theirs == namespace {
			return true
		}
	}
	return false
}

// namespaceOf names the PID namespace of a process.
func namespaceOf(pid string) (string, error) {
	return os.Readlink(filepath.Join("/proc", pid, "ns/pid"))
}

// startTime is field 22 of /proc/PID/stat, counted behind the command's name.
func startTime(pid int) (string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("read the start time of process %d: short stat line", pid)
	}
	return fields[19], nil
}
