package kernel

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// want is every setting as Kubernetes needs it.
func want() map[string]int {
	return map[string]int{
		"vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
		"kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000,
	}
}

const noSwap = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"

// machine is a proc filesystem of files.
func machine(t *testing.T, swaps string, settings map[string]int) Machine {
	t.Helper()
	m := Machine{Proc: t.TempDir(), CgroupV2: func() bool { return true }}
	for name, value := range settings {
		file := m.proc("sys", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strconv.Itoa(value)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if swaps != "" {
		if err := os.WriteFile(m.proc("swaps"), []byte(swaps), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestWhatAMachineMustBeLike(t *testing.T) {
	swap := noSwap + "/dev/sda2                               partition\t1048572\t\t0\t\t-2\n"
	differing := want()
	differing["vm/overcommit_memory"], differing["kernel/panic"] = 0, 1
	all := Config{FailSwapOn: true, FailCgroupV1: true, Tunables: Refuse}
	for _, c := range []struct {
		name     string
		cfg      Config
		swaps    string
		settings map[string]int
		v1       bool
		want     []string // the lines of the error
	}{
		{"all is well", all, noSwap, want(), false, nil},
		{"a kernel without swap", all, "", want(), false, nil},
		{"swap", all, swap, want(), false, []string{"running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"}},
		{"swap that is wanted", Config{}, swap, want(), false, nil},
		{"cgroup v1", all, noSwap, want(), true, []string{"kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release: boot with systemd.unified_cgroup_hierarchy=1, or set failCgroupV1 to false"}},
		{"cgroup v1 that is wanted", Config{}, noSwap, want(), true, nil},
		{"settings that may not be changed", all, noSwap, differing, false, []string{
			"invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0",
			"invalid kernel flag: kernel/panic, expected value: 10, actual value: 1",
		}},
		{"settings that may be changed", Config{Tunables: Modify}, noSwap, differing, false, nil},
		{"settings that are left", Config{Tunables: Leave}, noSwap, differing, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine(t, c.swaps, c.settings)
			m.CgroupV2 = func() bool { return !c.v1 }
			var got []string
			if err := m.Check(c.cfg); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("refused with %q; want %q", got, c.want)
			}
			if now := settingsOf(t, m); !maps.Equal(now, c.settings) {
				t.Errorf("a check has changed the machine: %v", now)
			}
		})
	}
}

func settingsOf(t *testing.T, m Machine) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, s := range tunables() {
		value, err := m.read(s)
		if err != nil {
			t.Fatal(err)
		}
		out[s.name] = value
	}
	return out
}

func TestSettingsThatDifferAreSet(t *testing.T) {
	settings := want()
	settings["vm/overcommit_memory"], settings["kernel/panic_on_oops"] = 0, 0
	m := machine(t, noSwap, settings)
	changed, err := m.Tune()
	if err != nil || !slices.Equal(changed, []string{"vm/overcommit_memory 0 -> 1", "kernel/panic_on_oops 0 -> 1"}) {
		t.Errorf("changed %q, %v", changed, err)
	}
	if now := settingsOf(t, m); !maps.Equal(now, want()) {
		t.Errorf("it has %v", now)
	}
	if changed, err := m.Tune(); err != nil || len(changed) > 0 {
		t.Errorf("a second time: changed %q, %v", changed, err)
	}
}

func TestWhatCannotBeSetIsNamedAndTheRestIsSet(t *testing.T) {
	settings := want()
	settings["kernel/panic"] = 0
	m := machine(t, noSwap, settings)
	if err := os.Remove(m.proc("sys/vm/overcommit_memory")); err != nil {
		t.Fatal(err)
	}
	changed, err := m.Tune()
	if err == nil || !strings.Contains(err.Error(), "vm/overcommit_memory") || !slices.Equal(changed, []string{"kernel/panic 0 -> 10"}) {
		t.Errorf("changed %q, %v", changed, err)
	}
}

func TestThisKernelSaysWhetherATmpfsCanStayInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a filesystem needs root")
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	parts := strings.SplitN(unix.ByteSliceToString(name.Release[:]), ".", 3)
	major, _ = strconv.Atoi(parts[0])
	minor, _ = strconv.Atoi(parts[1])
	if newer := major > 6 || major == 6 && minor >= 4; newer && !NoSwapMounts() {
		t.Errorf("Linux %d.%d has tmpfs noswap; want it found", major, minor)
	}
}
