package report

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Commit is that of the checkout, as git describes it.
func Commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// Machine says what the figures were taken on.
func Machine() string {
	var u syscall.Utsname
	kernel := "unknown"
	if err := syscall.Uname(&u); err == nil {
		var b strings.Builder
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			b.WriteByte(byte(c))
		}
		kernel = b.String()
	}
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d cores (%s), %s MiB, Linux %s, load at the end %s", runtime.NumCPU(), cpuModel(), memory(), kernel, strings.TrimSpace(string(load)))
}

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func memory() string {
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return "unknown"
	}
	return fmt.Sprint(info.Totalram * uint64(info.Unit) >> 20)
}
