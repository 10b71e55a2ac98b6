package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
)

func TestRaiseTakesNothingAwayAndFitDoes(t *testing.T) {
	tr := onKernel(t, Config{CPUCFSQuota: true})
	tr.requireV1(t)
	ctx := t.Context()
	n, _ := tr.pod(v1.PodQOSBurstable, "x")
	check := func(when, shares, quota, memory string) {
		t.Helper()
		for file, want := range map[string]string{"cpu.shares": shares, "cpu.cfs_quota_us": quota} {
			if got := tr.value(t, n, "cpu", file); got != want {
				t.Errorf("%s: %s = %s, want %s", when, file, got, want)
			}
		}
		if got := tr.value(t, n, "memory", "memory.limit_in_bytes"); got != memory {
			t.Errorf("%s: memory limit %s, want %s", when, got, memory)
		}
	}
	small, mixed := podOf("x", list("100m", "32Mi"), list("200m", "64Mi")), podOf("x", list("500m", "16Mi"), list("600m", "32Mi"))
	if err := tr.Raise(ctx, small); err != nil {
		t.Fatal(err)
	}
	check("made by Raise", "102", "20000", "67108864")
	if err := tr.Raise(ctx, mixed); err != nil {
		t.Fatal(err)
	}
	check("raised", "512", "60000", "67108864")
	if err := tr.Fit(ctx, mixed); err != nil {
		t.Fatal(err)
	}
	check("fitted", "512", "60000", "33554432")
	// The next run knows the kernel's values only.
	again, err := New(tr.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Raise(ctx, small); err != nil {
		t.Fatal(err)
	}
	check("raised after a restart", "512", "60000", "67108864")
	if err := again.Raise(ctx, podOf("x", list("500m", "16Mi"), nil)); err != nil {
		t.Fatal(err)
	}
	check("raised to no limit", "512", "-1", "9223372036854771712")
	if err := again.Fit(ctx, small); err != nil {
		t.Fatal(err)
	}
	check("fitted after that", "102", "20000", "67108864")
}

func TestAMemoryLimitIsNotTakenBelowWhatIsInUse(t *testing.T) {
	tr := onKernel(t, Config{})
	ctx := t.Context()
	pod := podOf("x", list("", "64Mi"), list("", "64Mi"))
	if _, err := tr.Ensure(ctx, pod); err != nil {
		t.Fatal(err)
	}
	n, _ := tr.pod(v1.PodQOSBurstable, "x")
	m, err := tr.open(n)
	if err != nil {
		t.Fatal(err)
	}
	// What lies in memory counts for whoever wrote it.
	file := filepath.Join("/dev/shm", fmt.Sprintf("polylet-test-%d", os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(file) })
	script := fmt.Sprintf("echo $$ > %s/cgroup.procs && head -c 8388608 /dev/zero > %s", m.Path("memory"), file)
	if out, err := exec.CommandContext(ctx, "sh", "-c", script).CombinedOutput(); err != nil {
		t.Skipf("this machine does not let a process use memory in a cgroup: %v: %s", err, out)
	}
	err = tr.Fit(ctx, podOf("x", list("", "1Mi"), list("", "4Mi")))
	if err == nil || !regexp.MustCompile(`^cannot decrease memory limits: attempting to set pod memory limit \(4194304\) below current usage \(\d+\)$`).MatchString(err.Error()) {
		t.Errorf("error %v", err)
	}
	// The next run, for one whose sandbox is made anew.
	again, err := New(tr.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Ensure(ctx, podOf("x", list("", "1Mi"), list("", "4Mi"))); err != nil {
		t.Errorf("Ensure: %v", err)
	}
	if have, err := tr.read(m); err != nil || have.memory != 64<<20 {
		t.Errorf("Ensure left a limit of %d, %v", have.memory, err)
	}
	if err := tr.Fit(ctx, podOf("x", list("", "1Mi"), list("", "32Mi"))); err != nil {
		t.Errorf("a limit above what is in use: %v", err)
	}
}

// inDir is a cgroup whose files lie in a plain directory.
type inDir struct {
	cgroups.Manager
	dir string
}

func (d inDir) Path(string) string { return d.dir }

func TestWhatAUnifiedCgroupHasIsRead(t *testing.T) {
	tr := &tree{unified: true, controllers: []string{"cpu", "memory"}}
	for _, tc := range []struct {
		max, weight, memory string
		want                wanted
	}{
		{"max 100000", "100", "max", wanted{shares: 1012}}, // the least that give this weight
		{"20000 100000", "1", "67108864", wanted{shares: 1, quota: 20_000, period: 100_000, memory: 64 << 20}},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"cpu.max": tc.max, "cpu.weight": tc.weight, "memory.max": tc.memory} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := tr.read(inDir{dir: dir})
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%+v: %+v, %v", tc, got, err)
		}
	}
	if _, err := tr.read(inDir{dir: t.TempDir()}); err == nil {
		t.Error("a cgroup without files was read")
	}
}

func TestTheLargerOfTwoLimitsIsTaken(t *testing.T) {
	for _, tc := range []struct{ now, next, want wanted }{
		{wanted{}, wanted{shares: 5, quota: 10, period: 100, memory: 1}, wanted{shares: 5}},
		{wanted{shares: 9, quota: 10, period: 100, memory: 2}, wanted{shares: 5}, wanted{shares: 9}},
		{wanted{shares: 1, quota: 10, period: 100, memory: 2}, wanted{shares: 5, quota: 15, period: 200, memory: 1}, wanted{shares: 5, quota: 10, period: 100, memory: 2}},
		{wanted{shares: 1, quota: 10, period: 100, memory: 1}, wanted{shares: 5, quota: 25, period: 200, memory: 2}, wanted{shares: 5, quota: 25, period: 200, memory: 2}},
	} {
		if got := tc.next.raise(tc.now); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%+v raised from %+v: %+v, want %+v", tc.next, tc.now, got, tc.want)
		}
	}
}
