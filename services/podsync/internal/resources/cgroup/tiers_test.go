package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/resources"
)

func TestPodsOfAClassMayUseWhatIsNotReservedForBetterOnes(t *testing.T) {
	tr := onKernel(t, Config{EnforcePods: true})
	tr.requireV1(t)
	ctx := t.Context()
	want := func(when, burstable, best string) {
		t.Helper()
		b, e := tr.value(t, tr.tier(v1.PodQOSBurstable), "memory", "memory.limit_in_bytes"), tr.value(t, tr.tier(v1.PodQOSBestEffort), "memory", "memory.limit_in_bytes")
		if b != burstable || e != best {
			t.Errorf("%s: burstable %s, best effort %s", when, b, e)
		}
	}
	setup := func(tiers *Tiers) {
		t.Helper()
		if err := tr.Setup(ctx, Limits{Tiers: tiers}); err != nil {
			t.Fatal(err)
		}
	}
	setup(&Tiers{Burstable: 1 << 30, BestEffort: 1 << 29})
	want("at first", "1073741824", "536870912")
	if _, err := tr.Ensure(ctx, podOf("b", list("1", "1Mi"), nil)); err != nil {
		t.Fatal(err)
	}
	want("when a pod came", "1073741824", "536870912")
	setup(nil)
	want("while it is not known", "1073741824", "536870912")
	setup(&Tiers{})
	none := tr.value(t, tr.kubepods()[:1], "memory", "memory.limit_in_bytes")
	want("when nothing is reserved any more", none, none)
}

// The kernel refuses a limit below what is in use, or kills.
// uses32MiB has a pod of the class BestEffort use as much that cannot be given back,
// until end is called.
func uses32MiB(t *testing.T, k *tree) (end func()) {
	t.Helper()
	if _, err := k.Ensure(t.Context(), podOf("e", nil, nil)); err != nil {
		t.Fatal(err)
	}
	n, _ := k.pod(v1.PodQOSBestEffort, "e")
	m, err := k.open(n)
	if err != nil {
		t.Fatal(err)
	}
	// Not the last command of its shell: that one would be in the place of the shell and its memory.
	cmd := exec.Command("sh", "-c", `read go; tr '\0' x < /dev/zero | head -c 33554432 | (x=$(cat); echo ready; sleep 600; :)`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { kill(m); _ = cmd.Wait() })
	t.Cleanup(func() { _ = cmd.Process.Kill(); end() })
	if err := m.Apply(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "go")
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return end
}

func TestPodsThatUseMoreThanTheNodeHasForPodsAreNotKilledForIt(t *testing.T) {
	tr := onKernel(t, Config{EnforcePods: true})
	tr.requireV1(t)
	if err := tr.Setup(t.Context(), Limits{}); err != nil {
		t.Fatal(err)
	}
	end := uses32MiB(t, tr)
	err := tr.Setup(t.Context(), Limits{MemoryBytes: 8 << 20})
	if !errors.Is(err, ErrInUse) {
		t.Fatalf("%v", err)
	}
	limit, err := strconv.ParseInt(tr.value(t, tr.kubepods(), "memory", "memory.limit_in_bytes"), 10, 64)
	if err != nil || limit < 32<<20 || limit > 200<<20 {
		t.Errorf("limit %d, %v", limit, err)
	}
	end()
}

func TestPodsThatUseMoreThanIsLeftToTheirClassGetNoMoreAndAreNotKilled(t *testing.T) {
	tr := onKernel(t, Config{EnforcePods: true})
	tr.requireV1(t)
	ctx := t.Context()
	if err := tr.Setup(ctx, Limits{Tiers: &Tiers{}}); err != nil {
		t.Fatal(err)
	}
	end := uses32MiB(t, tr)
	err := tr.Setup(ctx, Limits{Tiers: &Tiers{BestEffort: 8 << 20}})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "besteffort") {
		t.Fatalf("%v", err)
	}
	limit, err := strconv.ParseInt(tr.value(t, tr.tier(v1.PodQOSBestEffort), "memory", "memory.limit_in_bytes"), 10, 64)
	if err != nil || limit < 32<<20 || limit > 200<<20 {
		t.Errorf("limit %d, %v", limit, err)
	}
	end()
	for range 1500 { // a killed process takes its time on a busy machine
		if err = tr.Setup(ctx, Limits{Tiers: &Tiers{BestEffort: 8 << 20}}); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := tr.value(t, tr.tier(v1.PodQOSBestEffort), "memory", "memory.limit_in_bytes"); got != "8388608" {
		t.Errorf("when it has ended %s", got)
	}
}

func TestMemoryIsProtectedOnUnifiedCgroups(t *testing.T) {
	tr, root := onPaper(t, Config{EnforcePods: true, MemoryQoS: resources.MemoryQoS{On: true, Tiered: true}})
	ctx := t.Context()
	system := filepath.Join(root, "system.slice")
	if err := os.MkdirAll(system, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(system, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(system, "memory.low"), []byte("4096"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := func(when string, all map[string]string) {
		t.Helper()
		for file, want := range all {
			raw, err := os.ReadFile(filepath.Join(root, file))
			if got := strings.TrimSpace(string(raw)); err != nil || got != want {
				t.Errorf("%s: %s = %q, want %s (%v)", when, file, got, want, err)
			}
		}
	}
	limits := Limits{Tiers: &Tiers{Min: 96 << 20, Low: 32 << 20}, Reserved: []Reserved{{Kind: "system-reserved", Cgroup: "/system.slice", MemoryBytes: 1 << 20}}}
	if err := tr.Setup(ctx, limits); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []*v1.Pod{podOf("g", list("500m", "64Mi"), list("500m", "64Mi")), podOf("b", list("1", "32Mi"), nil), podOf("e", nil, nil)} {
		if _, err := tr.Ensure(ctx, pod); err != nil {
			t.Fatal(err)
		}
	}
	want("with the gate", map[string]string{
		"kubepods/memory.min": "100663296", "kubepods/burstable/memory.low": "33554432", "kubepods/podg/memory.min": "67108864", "kubepods/podg/memory.low": "0",
		"kubepods/burstable/podb/memory.low": "33554432", "kubepods/burstable/podb/memory.min": "0", "kubepods/besteffort/pode/memory.low": "0",
		"system.slice/memory.min": "1048576",
		"system.slice/memory.low": "4096", // Who owns it has said so.
	})
	for _, file := range []string{"kubepods/memory.low", "kubepods/burstable/memory.min", "kubepods/besteffort/memory.min"} {
		if raw, err := os.ReadFile(filepath.Join(root, file)); err == nil {
			t.Errorf("%s is %q: that is not for this gate to say", file, raw)
		}
	}
	if err := tr.Setup(ctx, Limits{Tiers: &Tiers{}}); err != nil {
		t.Fatal(err)
	}
	want("when nothing is protected any more", map[string]string{"kubepods/memory.min": "0", "kubepods/burstable/memory.low": "0"})
}

// As MemoryMin= of a drop-in for kubepods.slice: the kubelet leaves it alone, too.
func TestWhatOthersHaveProtectedOfMemoryStaysWithoutMemoryQoS(t *testing.T) {
	tr, root := onPaper(t, Config{EnforcePods: true})
	files := map[string]string{}
	for _, group := range []string{"kubepods", "kubepods/burstable", "kubepods/burstable/podb"} {
		if err := os.MkdirAll(filepath.Join(root, group), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"memory.min", "memory.low"} {
			files[filepath.Join(root, group, file)] = "8192"
		}
	}
	for file, text := range files {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Setup(t.Context(), Limits{Tiers: &Tiers{Min: 1 << 30, Low: 1 << 30}}); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Ensure(t.Context(), podOf("b", list("1", "32Mi"), nil)); err != nil {
		t.Fatal(err)
	}
	for file, want := range files {
		if raw, err := os.ReadFile(file); err != nil || string(raw) != want {
			t.Errorf("%s is %q, %v", file, raw, err)
		}
	}
}

func TestPodsThatUseMoreThanIsLeftToTheirClassGetNoMoreEachTimeItIsTried(t *testing.T) {
	tr, root := onPaper(t, Config{EnforcePods: true})
	dir := filepath.Join(root, "kubepods", "besteffort")
	set := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Setup(t.Context(), Limits{Tiers: &Tiers{}}); err != nil {
		t.Fatal(err)
	}
	set("memory.stat", "inactive_file 0\nactive_file 0")
	set("memory.max", "max")
	for _, used := range []string{"33554432", "34603008", "34500000"} {
		set("memory.current", used)
		if err := tr.Setup(t.Context(), Limits{Tiers: &Tiers{BestEffort: 8 << 20}}); !errors.Is(err, ErrInUse) {
			t.Fatal(err)
		}
		if raw, err := os.ReadFile(filepath.Join(dir, "memory.max")); err != nil || strings.TrimSpace(string(raw)) != "34603008" {
			t.Errorf("%s are in use: limit %s, %v", used, raw, err)
		}
	}
}
