package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAReservedCgroupIsLimitedAndNeverMade(t *testing.T) {
	tr := onKernel(t, Config{EnforcePods: true})
	tr.requireV1(t)
	ctx := t.Context()
	theirs := append(tr.kubepods()[:1:1], "theirs")
	m, err := tr.open(theirs)
	if err != nil {
		t.Fatal(err)
	}
	reserved := Reserved{Kind: "system-reserved", Cgroup: theirs.path(), MilliCPU: 500, MemoryBytes: 64 << 20, PIDs: 99}
	err = tr.Setup(ctx, Limits{Reserved: []Reserved{reserved}})
	if err == nil || !strings.Contains(err.Error(), "enforce system-reserved on cgroup "+theirs.path()+": there is no such cgroup; make it") || existsAny(m) {
		t.Fatalf("a cgroup that is not there: %v", err)
	}
	if err := m.Apply(-1); err != nil {
		t.Fatal(err)
	}
	if err := tr.Setup(ctx, Limits{Reserved: []Reserved{reserved}}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cpu/cpu.shares": "512", "memory/memory.limit_in_bytes": "67108864", "pids/pids.max": "99"} {
		controller, name, _ := strings.Cut(file, "/")
		if got := tr.value(t, theirs, controller, name); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
	// Only its share of the processor: the limits that stand are not ours to take away.
	compressible := Reserved{Kind: "system-reserved", Cgroup: theirs.path(), MilliCPU: 1000}
	if err := tr.Setup(ctx, Limits{Reserved: []Reserved{compressible}}); err != nil {
		t.Fatal(err)
	}
	if cpu, memory := tr.value(t, theirs, "cpu", "cpu.shares"), tr.value(t, theirs, "memory", "memory.limit_in_bytes"); cpu != "1024" || memory != "67108864" {
		t.Errorf("shares %s, memory %s", cpu, memory)
	}
	for _, bad := range []string{"", "/", "relative", "/a/../b"} {
		if err := tr.Setup(ctx, Limits{Reserved: []Reserved{{Kind: "kube-reserved", Cgroup: bad}}}); err == nil || !strings.Contains(err.Error(), "absolute path") {
			t.Errorf("cgroup %q: %v", bad, err)
		}
	}
}

// What kubelet 1.36.3 makes of kubeReservedCgroup and systemReservedCgroup.
func TestAReservedCgroupOfSystemdIsTheOneThatAKubeletTakes(t *testing.T) {
	base := t.TempDir()
	tr := &tree{cfg: Config{Root: "/", Driver: Systemd}, bases: func() (map[string]string, error) {
		return map[string]string{"": base, "memory": filepath.Join(base, "memory")}, nil
	}}
	places := func(when string, want map[string]string) {
		t.Helper()
		for configured, want := range want {
			at, unit, err := tr.place(configured)
			if got := strings.TrimSpace(at + " " + unit); got != want || (err != nil) != (want == "") {
				t.Errorf("%s: %q is %q, not %q: %v", when, configured, got, want, err)
			}
		}
	}
	places("nothing is there", map[string]string{
		"/system.slice": "/system.slice system.slice", "/system.slice/": "/system.slice system.slice",
		"/system": "/system.slice system.slice", "/runtime": "/runtime.slice runtime.slice", "system": "/system.slice system.slice",
		"/kube-reserved.slice": "/kube.slice/kube-reserved.slice kube-reserved.slice", "/kube-reserved": "/kube.slice/kube-reserved.slice kube-reserved.slice",
		"/kube.slice/kube-reserved.slice": "/kube.slice/kube-reserved.slice kube-reserved.slice", "/a/b_c": "/b_c.slice b_c.slice",
		"": "", "/": "", "/..": "", "/-": "", "/-.slice": "", "/a--b": "", "/-a": "",
	})
	for _, dir := range []string{"runtime", "kubelet.service", "a--b", "other.slice", "other", "memory/of/memory"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	places("what is written is there", map[string]string{
		"/runtime": "/runtime", "/kubelet.service": "/kubelet.service", "/a--b": "/a--b", "/of/memory": "/of/memory",
		"/other": "/other.slice other.slice", "/system": "/system.slice system.slice",
	})
	tr.cfg.Driver = Cgroupfs
	places("cgroupfs", map[string]string{"/runtime": "/runtime", "/kube-reserved": "/kube-reserved", "/runtime/": "", "runtime": "", "/a/../b": ""})
}

func TestLimitsOfAllPodsChangeWhileTheyRun(t *testing.T) {
	tr := onKernel(t, Config{EnforcePods: true})
	tr.requireV1(t)
	for _, c := range []struct {
		limits                Limits
		shares, memory, procs string
	}{
		{Limits{MilliCPU: 1500, MemoryBytes: 1 << 30, PIDs: 5000}, "1536", "1073741824", "5000"},
		{Limits{MilliCPU: 500, MemoryBytes: 1 << 29, PIDs: 50}, "512", "536870912", "50"},
		{Limits{MilliCPU: 2000, MemoryBytes: 1 << 31, PIDs: 500}, "2048", "2147483648", "500"},
	} {
		if err := tr.Setup(t.Context(), c.limits); err != nil {
			t.Fatal(err)
		}
		n := tr.kubepods()
		if s, m, p := tr.value(t, n, "cpu", "cpu.shares"), tr.value(t, n, "memory", "memory.limit_in_bytes"), tr.value(t, n, "pids", "pids.max"); s != c.shares || m != c.memory || p != c.procs {
			t.Errorf("%+v: shares %s, memory %s, pids %s", c.limits, s, m, p)
		}
	}
}

// onPaper is a tree of cgroup v2 in an ordinary directory: what is written can
// be read, and nothing is limited.
func onPaper(t *testing.T, cfg Config) (*tree, string) {
	t.Helper()
	cgroups.TestMode = true
	t.Cleanup(func() { cgroups.TestMode = false })
	root := t.TempDir()
	cfg.Root, cfg.Driver = "/", Cgroupfs
	return &tree{
		cfg: cfg, unified: true, controllers: []string{"cpu", "memory", "pids", "hugetlb"},
		bases: func() (map[string]string, error) { return map[string]string{"": root}, nil },
		make: func(m cgroups.Manager) error {
			dir := m.Path("")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpu memory pids hugetlb\n"), 0o600)
		},
		sharing: make(chan struct{}, 1), mu: sync.Mutex{}, applied: map[string]string{}, burst: map[types.UID]uint64{},
	}, root
}

func TestUnifiedCgroupsGetWeightsAndMaxima(t *testing.T) {
	tr, root := onPaper(t, Config{EnforcePods: true, PodPidsLimit: 77, CPUCFSQuota: true})
	ctx := t.Context()
	system := filepath.Join(root, "system.slice")
	if err := os.MkdirAll(system, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(system, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	limits := Limits{MilliCPU: 1000, MemoryBytes: 1 << 30, PIDs: 5000, Reserved: []Reserved{{Kind: "system-reserved", Cgroup: "/system.slice", MilliCPU: 1000, MemoryBytes: 1 << 20, PIDs: 9}}}
	if err := tr.Setup(ctx, limits); err != nil {
		t.Fatal(err)
	}
	for uid, pod := range map[string]*v1.Pod{
		"g": podOf("g", list("500m", "64Mi"), list("500m", "64Mi")), "b": podOf("b", list("1", ""), nil), "e": podOf("e", nil, nil),
	} {
		if _, err := tr.Ensure(ctx, pod); err != nil {
			t.Fatalf("%s: %v", uid, err)
		}
	}
	for file, want := range map[string]string{
		"kubepods/cpu.weight": "100", "kubepods/memory.max": "1073741824", "kubepods/pids.max": "5000",
		"kubepods/besteffort/cpu.weight": "1", "kubepods/burstable/cpu.weight": "100",
		"kubepods/podg/cpu.max": "50000 100000", "kubepods/podg/memory.max": "67108864", "kubepods/podg/pids.max": "77",
		"kubepods/burstable/podb/cpu.weight": "100", "kubepods/besteffort/pode/cpu.weight": "1",
		"system.slice/cpu.weight": "100", "system.slice/memory.max": "1048576", "system.slice/pids.max": "9",
	} {
		raw, err := os.ReadFile(filepath.Join(root, file))
		if got := strings.TrimSpace(string(raw)); err != nil || got != want {
			t.Errorf("%s = %q, want %s (%v)", file, got, want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "kubepods/burstable/podb/cpu.max")); err == nil {
		t.Error("a pod without a limit has a quota")
	}
}

func TestPodsHaveTheSharesOfTheMachineAlsoWithoutALimit(t *testing.T) {
	tr, root := onPaper(t, Config{})
	if err := tr.Setup(t.Context(), Limits{MilliCPU: 8000, MemoryBytes: 1 << 30, PIDs: 5000}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cpu.weight": fmt.Sprint(cgroups.ConvertCPUSharesToCgroupV2Value(8192)), "memory.max": "", "pids.max": ""} {
		if raw, err := os.ReadFile(filepath.Join(root, "kubepods", file)); strings.TrimSpace(string(raw)) != want || want != "" && err != nil {
			t.Errorf("%s is %q, want %q (%v)", file, raw, want, err)
		}
	}
}
