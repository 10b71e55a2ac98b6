// Package apparmor reads whether the kernel enforces AppArmor, and which profiles it
// has.
//
// It owns the kernel's files that say so. It must never load a profile, and never
// keep an answer.
package apparmor

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Read says whether AppArmor is off, and which profiles there are; nil when that
// cannot be told. It reads the kernel's memory, and does not block.
func Read() (off bool, profiles map[string]bool) {
	return read("/sys/module/apparmor/parameters/enabled", "/sys/kernel/security/apparmor/profiles")
}

func read(enabled, loaded string) (off bool, profiles map[string]bool) {
	answer, err := os.ReadFile(enabled)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !strings.HasPrefix(string(answer), "Y") {
		return true, nil
	}
	text, err := os.ReadFile(loaded)
	if err != nil {
		return false, nil
	}
	profiles = map[string]bool{}
	for line := range strings.Lines(string(text)) { // name (mode)
		if i := strings.LastIndex(line, " ("); i > 0 {
			profiles[line[:i]] = true
		}
	}
	return false, profiles
}
