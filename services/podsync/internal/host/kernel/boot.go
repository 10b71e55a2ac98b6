package kernel

import (
	"bytes"
	"os"
)

// BootID is the kernel's name for the machine's present start; empty when it has none.
func BootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(data))
}
