package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Behaviour is what is done about kernel settings that differ from what
// Kubernetes needs.
type Behaviour int

const (
	// Leave does nothing.
	Leave Behaviour = iota
	// Modify sets them.
	Modify
	// Refuse makes the machine unfit (protectKernelDefaults).
	Refuse
)

// tunable is a setting below /proc/sys and the value that it must have.
type tunable struct {
	name  string
	value int
}

// tunables are the kubelet's.
func tunables() []tunable {
	return []tunable{
		{"vm/overcommit_memory", 1}, // memory is bounded by cgroups, not by what was promised
		{"vm/panic_on_oom", 0},
		{"kernel/panic", 10}, // seconds until a machine that hangs boots again
		{"kernel/panic_on_oops", 1},
		{"kernel/keys/root_maxkeys", 1000000}, // runc makes a keyring for each container
		{"kernel/keys/root_maxbytes", 25000000},
	}
}

func (m Machine) read(t tunable) (int, error) {
	data, err := os.ReadFile(m.proc("sys", t.name))
	if err != nil {
		return 0, err
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("kernel flag %s: %w", t.name, err)
	}
	return value, nil
}

// differing is an error for each setting that is not as it must be.
func (m Machine) differing() []error {
	var errs []error
	for _, t := range tunables() {
		actual, err := m.read(t)
		switch {
		case err != nil:
			errs = append(errs, err)
		case actual != t.value:
			errs = append(errs, fmt.Errorf("invalid kernel flag: %s, expected value: %d, actual value: %d", t.name, t.value, actual))
		}
	}
	return errs
}

// Tune sets the settings that differ, and names each that it changed, as
// "vm/overcommit_memory 0 -> 1". It goes on over what cannot be set (in a
// container /proc/sys is read-only), which the error names.
func (m Machine) Tune() (changed []string, err error) {
	var errs []error
	for _, t := range tunables() {
		actual, err := m.read(t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if actual == t.value {
			continue
		}
		if err := os.WriteFile(m.proc("sys", t.name), []byte(strconv.Itoa(t.value)), 0o644); err != nil { //nolint:gosec // The file is the kernel's.
			errs = append(errs, fmt.Errorf("set it from %d to %d: %w", actual, t.value, err))
			continue
		}
		changed = append(changed, fmt.Sprintf("%s %d -> %d", t.name, actual, t.value))
	}
	return changed, errors.Join(errs...)
}
