// Package apparmor reads whether the kernel enforces AppArmor.
//
// It owns the kernel's file that says so. It must never load a profile, and never
// keep an answer.
package apparmor

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Enabled says whether AppArmor is enforced, or might be: the kernel does not tell. It reads the
// kernel's memory, and does not block.
func Enabled() bool { return enabled("/sys/module/apparmor/parameters/enabled") }

func enabled(path string) bool {
	answer, err := os.ReadFile(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return strings.HasPrefix(string(answer), "Y")
}
