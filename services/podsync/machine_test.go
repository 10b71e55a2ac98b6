package podsync

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/host/kernel"
	"github.com/polylet/polylet/services/podsync/internal/report/event"
)

// onMachine is a Service that has a machine of files and nothing else.
func onMachine(t *testing.T, p MachinePolicy, swaps string, v2 bool) (*Service, *healths, string) {
	t.Helper()
	proc := t.TempDir()
	files := map[string]string{"swaps": "Filename\tType\n" + swaps}
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		files["sys/"+name] = "7\n"
	}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Join(proc, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := &healths{said: map[string]string{}}
	return &Service{
		cfg: Config{Machine: &p}, events: event.New(event.Config{NodeName: "n1"}, event.Deps{}),
		deps: Deps{Health: h, Machine: kernel.Machine{Proc: proc, CgroupV2: func() bool { return v2 }}},
	}, h, proc
}

func TestAMachineThatIsNotFitIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		policy MachinePolicy
		want   []string
	}{
		"swap":      {MachinePolicy{FailSwapOn: true}, []string{"running with swap on is not supported"}},
		"cgroup v1": {MachinePolicy{FailCgroupV1: true}, []string{"kubelet is configured to not run on a host using cgroup v1"}},
		"all at once": {MachinePolicy{FailSwapOn: true, FailCgroupV1: true, ProtectKernelDefaults: true}, []string{
			"swap on", "cgroup v1", "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 7", "kernel/keys/root_maxbytes",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, proc := onMachine(t, c.policy, "/swap\tfile\n", false)
			err := s.readyMachine(logr.Discard())
			for _, text := range c.want {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in the refusal: %v", text, err)
				}
			}
			if now, err := os.ReadFile(filepath.Join(proc, "sys/vm/overcommit_memory")); err != nil || string(now) != "7\n" {
				t.Errorf("a machine that was refused was changed: %q, %v", now, err)
			}
		})
	}
}

func TestAMachineIsMadeReadyAndSaysWhatIsNotAsItShouldBe(t *testing.T) {
	for name, c := range map[string]struct {
		policy     MachinePolicy
		v2         bool
		overcommit string
		events     []string
	}{
		// nodestatus says so on the Node: two events of it would be one too many.
		"cgroup v1": {MachinePolicy{}, false, "1", nil},
		"cgroup v2": {MachinePolicy{}, true, "1", nil},
		"left":      {MachinePolicy{LeaveKernelSettings: true}, true, "7\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, h, proc := onMachine(t, c.policy, "", c.v2)
			if err := s.readyMachine(logr.Discard()); err != nil {
				t.Fatal(err)
			}
			if now, err := os.ReadFile(filepath.Join(proc, "sys/vm/overcommit_memory")); err != nil || string(now) != c.overcommit {
				t.Errorf("vm.overcommit_memory is %q, %v; want %q", now, err, c.overcommit)
			}
			var got []string
			for _, e := range s.events.Recent() {
				got = append(got, e.Reason)
			}
			if !slices.Equal(got, c.events) {
				t.Errorf("events %q; want %q", got, c.events)
			}
			if said := h.get("kernel settings"); !c.policy.LeaveKernelSettings && said != "ready" {
				t.Errorf("health says %q", said)
			}
		})
	}
}

func TestASettingThatCannotBeSetIsShownAndStopsNothing(t *testing.T) {
	s, h, proc := onMachine(t, MachinePolicy{}, "", true)
	if err := os.Remove(filepath.Join(proc, "sys/kernel/panic")); err != nil {
		t.Fatal(err)
	}
	if err := s.readyMachine(logr.Discard()); err != nil {
		t.Fatal(err)
	}
	if said := h.get("kernel settings"); !strings.Contains(said, "kernel/panic") || !strings.Contains(said, "sysctl.d") {
		t.Errorf("health says %q", said)
	}
}

func TestASocketForThePodsAPIThatCannotBeMadeEndsNothingAndIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		said := &healths{said: map[string]string{}}
		startInClusterWith(t, fakecri.New(fakecri.Config{}), fakeapiserver.New(fakeapiserver.Config{}), func(c *Config, d *Deps) {
			c.PodsAPISocket, d.Health = filepath.Join(file, "pods-api.sock"), said
		}, func(*Service) {})
		time.Sleep(time.Minute)
		if got := said.get("pods API"); !strings.Contains(got, file) || !strings.Contains(got, "tried again") {
			t.Errorf("health says %q", got)
		}
		if got := said.get("runtime"); got != "ready" {
			t.Errorf("the runtime is %q although only the socket is missing", got)
		}
	})
}

// Of a file of allocations that was damaged all that can be done is done at the
// start: nobody waits for it until the next one.
func TestADamagedFileOfAllocationsIsSaidAndNotWaitedForAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, said := health.NewTracker(logr.Discard()), ""
		tracker.OnTransition(func(d health.Dependency) {
			if d.Name == "allocations" && !d.Ready {
				said = d.Message
			}
		})
		startInClusterWith(t, fakecri.New(fakecri.Config{}), fakeapiserver.New(fakeapiserver.Config{}), func(c *Config, d *Deps) {
			d.Health = tracker
			if err := os.MkdirAll(filepath.Join(c.RootDir, "polylet"), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(c.RootDir, "polylet", "allocations.json"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, func(*Service) {})
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(said, "damaged") {
			t.Errorf("said was %q", said)
		}
		if _, missing := tracker.Ready(); slices.Contains(missing, "allocations") {
			t.Errorf("after a minute it waits for %v", missing)
		}
	})
}
