package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

// bench is a machine of files that keeps what is said of it.
type bench struct {
	Machine
	events []string
	said   map[string]string
}

func (b *bench) Node(_, reason, _ string) { b.events = append(b.events, reason) }

func (b *bench) Set(name string, ready bool, message string) {
	if ready {
		message = "ready"
	}
	b.said[name] = message
}

// onMachine is a machine of which every setting is another than Kubernetes needs.
func onMachine(t *testing.T, swaps string, v2 bool) *bench {
	t.Helper()
	b := &bench{Machine: Machine{Proc: t.TempDir(), CgroupV2: func() bool { return v2 }}, said: map[string]string{}}
	files := map[string]string{"swaps": "Filename\tType\n" + swaps}
	for name := range want() {
		files["sys/"+name] = "7\n"
	}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(b.proc(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(b.proc(name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestAMachineThatIsNotFitIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		policy Config
		want   []string
	}{
		"swap":      {Config{FailSwapOn: true}, []string{"running with swap on is not supported"}},
		"cgroup v1": {Config{FailCgroupV1: true}, []string{"kubelet is configured to not run on a host using cgroup v1"}},
		"all at once": {Config{FailSwapOn: true, FailCgroupV1: true, Tunables: Refuse}, []string{
			"swap on", "cgroup v1", "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 7", "kernel/keys/root_maxbytes",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := onMachine(t, "/swap\tfile\n", false)
			err := b.MakeReady(logr.Discard(), c.policy, b, b)
			for _, text := range c.want {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in the refusal: %v", text, err)
				}
			}
			if now, err := os.ReadFile(b.proc("sys/vm/overcommit_memory")); err != nil || string(now) != "7\n" {
				t.Errorf("a machine that was refused was changed: %q, %v", now, err)
			}
		})
	}
}

func TestAMachineIsMadeReadyAndSaysWhatIsNotAsItShouldBe(t *testing.T) {
	for name, c := range map[string]struct {
		policy     Config
		v2         bool
		overcommit string
		events     []string
	}{
		// nodestatus says so on the Node: two events of it would be one too many.
		"cgroup v1": {Config{Tunables: Modify}, false, "1", nil},
		"cgroup v2": {Config{Tunables: Modify}, true, "1", nil},
		"left":      {Config{Tunables: Leave}, true, "7\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := onMachine(t, "", c.v2)
			if err := b.MakeReady(logr.Discard(), c.policy, b, b); err != nil {
				t.Fatal(err)
			}
			if now, err := os.ReadFile(b.proc("sys/vm/overcommit_memory")); err != nil || string(now) != c.overcommit {
				t.Errorf("vm.overcommit_memory is %q, %v; want %q", now, err, c.overcommit)
			}
			if !slices.Equal(b.events, c.events) {
				t.Errorf("events %q; want %q", b.events, c.events)
			}
			if said := b.said["kernel settings"]; c.policy.Tunables == Modify && said != "ready" {
				t.Errorf("health says %q", said)
			}
		})
	}
}

func TestASettingThatCannotBeSetIsShownAndStopsNothing(t *testing.T) {
	b := onMachine(t, "", true)
	if err := os.Remove(b.proc("sys/kernel/panic")); err != nil {
		t.Fatal(err)
	}
	if err := b.MakeReady(logr.Discard(), Config{Tunables: Modify}, b, b); err != nil {
		t.Fatal(err)
	}
	if said := b.said["kernel settings"]; !strings.Contains(said, "kernel/panic") || !strings.Contains(said, "sysctl.d") {
		t.Errorf("health says %q", said)
	}
}
