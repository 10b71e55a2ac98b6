package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestTheCgroupOfAllPodsIsWhereTheDriverPutsIt(t *testing.T) {
	for _, tc := range []struct {
		root   string
		driver Driver
		want   string
	}{
		{"", Cgroupfs, "/kubepods"}, {"/", Systemd, "/kubepods.slice"}, {"/a/b-c", Cgroupfs, "/a/b-c/kubepods"},
		{"/a/b-c", Systemd, "/a.slice/a-b_c.slice/a-b_c-kubepods.slice"},
	} {
		if got := PodsPath(tc.root, tc.driver); got != tc.want {
			t.Errorf("%q with %s: %s, want %s", tc.root, tc.driver, got, tc.want)
		}
	}
}

func TestNamesOfBothDrivers(t *testing.T) {
	uid := types.UID("1a-2b")
	for _, c := range []struct {
		root          string
		class         v1.PodQOSClass
		fs, unit      string
		parent, slice string
	}{
		{"/", v1.PodQOSGuaranteed, "/kubepods/pod1a-2b", "kubepods-pod1a_2b.slice", "kubepods.slice", "kubepods-pod1a_2b.slice"},
		{"/", v1.PodQOSBurstable, "/kubepods/burstable/pod1a-2b", "kubepods-burstable-pod1a_2b.slice", "kubepods-burstable.slice", "kubepods-burstable-pod1a_2b.slice"},
		{"/", v1.PodQOSBestEffort, "/kubepods/besteffort/pod1a-2b", "kubepods-besteffort-pod1a_2b.slice", "kubepods-besteffort.slice", "kubepods-besteffort-pod1a_2b.slice"},
		{"/my/root-x", v1.PodQOSBurstable, "/my/root-x/kubepods/burstable/pod1a-2b", "my-root_x-kubepods-burstable-pod1a_2b.slice", "my-root_x-kubepods-burstable.slice", "my-root_x-kubepods-burstable-pod1a_2b.slice"},
	} {
		tr := &tree{cfg: Config{Root: c.root, Driver: Cgroupfs}}
		n, err := tr.pod(c.class, uid)
		if err != nil {
			t.Fatal(err)
		}
		if n.parent(Cgroupfs) != c.fs || n.parent(Systemd) != c.unit {
			t.Errorf("%s %s: %s, %s", c.root, c.class, n.parent(Cgroupfs), n.parent(Systemd))
		}
		if parent, own := n.slices(); parent != c.parent || own != c.slice {
			t.Errorf("%s %s: slices %s, %s", c.root, c.class, parent, own)
		}
		if got, ok := tr.podOf(filepath.Base(c.fs)); !ok || got != uid {
			t.Errorf("read back %q from %s", got, c.fs)
		}
		tr.cfg.Driver = Systemd
		if got, ok := tr.podOf(c.unit); !ok || got != uid {
			t.Errorf("read back %q from %s", got, c.unit)
		}
		if _, ok := tr.podOf("kubepods-burstable.slice"); ok {
			t.Error("a tier was taken for a pod")
		}
	}
	if parent, own := (name{"kubepods"}).slices(); parent != "-.slice" || own != "kubepods.slice" {
		t.Errorf("kubepods' slices: %s, %s", parent, own)
	}
	for _, bad := range []types.UID{"", "a/b"} {
		if _, err := (&tree{}).pod(v1.PodQOSBurstable, bad); err == nil {
			t.Errorf("UID %q was taken", bad)
		}
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	for _, cfg := range []Config{{Driver: "x"}, {Driver: Cgroupfs, Root: "relative"}, {Driver: Cgroupfs, Root: "/a/../b"}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

func TestSharesCanBeReadBackFromWeights(t *testing.T) {
	for _, shares := range []uint64{2, 102, 1024, 8192, 262144} {
		weight := cgroups.ConvertCPUSharesToCgroupV2Value(shares)
		back := sharesOf(weight)
		if got := cgroups.ConvertCPUSharesToCgroupV2Value(back); got != weight {
			t.Errorf("shares %d -> weight %d -> shares %d -> weight %d", shares, weight, back, got)
		}
	}
}

// onKernel is a tree below a root of its own, gone at the test's end.
func onKernel(t *testing.T, cfg Config) *tree {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("cgroups need root")
	}
	cfg.Root, cfg.Driver = fmt.Sprintf("/polylet-test-%d-%d", os.Getpid(), time.Now().UnixNano()), Cgroupfs
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tr := m.(*tree)
	t.Cleanup(func() {
		top, err := tr.open(tr.kubepods()[:1])
		if err != nil {
			t.Fatal(err)
		}
		kill(top)
		for range 1500 { // a killed process takes its time on a busy machine
			if err = top.Destroy(); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	return tr
}

// value reads one file of a cgroup.
func (t *tree) value(tb testing.TB, n name, controller, file string) string {
	tb.Helper()
	m, err := t.open(n)
	if err != nil {
		tb.Fatal(err)
	}
	dir := m.Path(controller)
	if dir == "" {
		tb.Skipf("this machine has no %s controller", controller)
	}
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

func (t *tree) requireV1(tb testing.TB) {
	tb.Helper()
	if t.unified {
		tb.Skip("this test reads cgroup v1 files")
	}
}

func list(cpu, memory string) v1.ResourceList {
	l := v1.ResourceList{}
	if cpu != "" {
		l[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func podOf(uid string, requests, limits v1.ResourceList) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}}},
	}
}

func TestPodsGetTheirTierAndLimits(t *testing.T) {
	tr := onKernel(t, Config{EnforcePods: true, PodPidsLimit: 77, CPUCFSQuota: true})
	tr.requireV1(t)
	ctx := t.Context()
	if err := tr.Setup(ctx, Limits{MilliCPU: 1500, MemoryBytes: 1 << 30, PIDs: 5000}); err != nil {
		t.Fatal(err)
	}
	root := tr.cfg.Root
	for _, c := range []struct{ pod, parent string }{
		{"g", root + "/kubepods/podg"}, {"b", root + "/kubepods/burstable/podb"}, {"e", root + "/kubepods/besteffort/pode"},
	} {
		pod := map[string]*v1.Pod{
			"g": podOf("g", list("500m", "64Mi"), list("500m", "64Mi")), "b": podOf("b", list("250m", ""), nil), "e": podOf("e", nil, nil),
		}[c.pod]
		for range 2 {
			if parent, err := tr.Ensure(ctx, pod); err != nil || parent != c.parent {
				t.Errorf("%s: parent %q, %v; want %q", c.pod, parent, err, c.parent)
			}
		}
	}
	n := func(parts ...string) name { return append(tr.kubepods(), parts...) }
	for _, c := range []struct {
		name             name
		controller, file string
		want             string
	}{
		{n(), "cpu", "cpu.shares", "1536"}, {n(), "memory", "memory.limit_in_bytes", "1073741824"}, {n(), "pids", "pids.max", "5000"},
		{n("podg"), "cpu", "cpu.shares", "512"}, {n("podg"), "cpu", "cpu.cfs_quota_us", "50000"}, {n("podg"), "memory", "memory.limit_in_bytes", "67108864"},
		{n("podg"), "pids", "pids.max", "77"},
		{n("burstable", "podb"), "cpu", "cpu.shares", "256"}, {n("burstable", "podb"), "cpu", "cpu.cfs_quota_us", "-1"},
		{n("burstable"), "cpu", "cpu.shares", "256"},
		{n("besteffort"), "cpu", "cpu.shares", "2"}, {n("besteffort", "pode"), "cpu", "cpu.shares", "2"},
	} {
		if got := tr.value(t, c.name, c.controller, c.file); got != c.want {
			t.Errorf("%s %s = %s, want %s", c.name.path(), c.file, got, c.want)
		}
	}
	if uids, err := tr.List(); err != nil || !slices.Equal(uids, []types.UID{"b", "e", "g"}) {
		t.Errorf("List = %v, %v", uids, err)
	}
}

func TestTheBurstableTierFollowsItsPodsEvenAfterARestart(t *testing.T) {
	tr := onKernel(t, Config{})
	tr.requireV1(t)
	ctx := t.Context()
	if err := tr.Setup(ctx, Limits{}); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"one", "two"} {
		if _, err := tr.Ensure(ctx, podOf(uid, list("500m", ""), nil)); err != nil {
			t.Fatal(err)
		}
	}
	tier := tr.tier(v1.PodQOSBurstable)
	if got := tr.value(t, tier, "cpu", "cpu.shares"); got != "1024" {
		t.Errorf("with two pods: %s shares", got)
	}
	again, err := New(tr.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Setup(ctx, Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := tr.value(t, tier, "cpu", "cpu.shares"); got != "1024" {
		t.Errorf("after a restart: %s shares", got)
	}
	if err := again.Remove(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if got := tr.value(t, tier, "cpu", "cpu.shares"); got != "512" {
		t.Errorf("with one pod left: %s shares", got)
	}
}

func TestALimitThatIsNoLongerWantedGoes(t *testing.T) {
	tr := onKernel(t, Config{CPUCFSQuota: true})
	tr.requireV1(t)
	ctx := t.Context()
	limited := podOf("x", list("100m", "32Mi"), list("200m", "64Mi"))
	if _, err := tr.Ensure(ctx, limited); err != nil {
		t.Fatal(err)
	}
	n, _ := tr.pod(v1.PodQOSBurstable, "x")
	if got := tr.value(t, n, "cpu", "cpu.cfs_quota_us"); got != "20000" {
		t.Errorf("quota %s", got)
	}
	if _, err := tr.Ensure(ctx, podOf("x", list("100m", "32Mi"), nil)); err != nil {
		t.Fatal(err)
	}
	if got := tr.value(t, n, "cpu", "cpu.cfs_quota_us"); got != "-1" {
		t.Errorf("quota %s, want none", got)
	}
	if got := tr.value(t, n, "memory", "memory.limit_in_bytes"); len(got) < 16 {
		t.Errorf("memory limit %s, want none", got)
	}
}

func TestRemoveKillsWhatIsLeftAndCanBeRepeated(t *testing.T) {
	tr := onKernel(t, Config{})
	ctx := t.Context()
	pod := podOf("dying", nil, nil)
	if _, err := tr.Ensure(ctx, pod); err != nil {
		t.Fatal(err)
	}
	n, _ := tr.pod(v1.PodQOSBestEffort, "dying")
	m, err := tr.open(append(n, "container"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	if err := m.Apply(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tr.Remove(ctx, "dying"); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-waited:
		if err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the process ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("process %s still runs", strconv.Itoa(cmd.Process.Pid))
	}
	if uids, err := tr.List(); err != nil || len(uids) != 0 {
		t.Errorf("List = %v, %v", uids, err)
	}
	if existsAny(m) {
		t.Error("the container's cgroup is still there")
	}
}

func TestOffMakesNothing(t *testing.T) {
	var m Manager = Off{Parent: "/x"}
	if parent, err := m.Ensure(t.Context(), podOf("a", nil, nil)); err != nil || parent != "/x" {
		t.Errorf("parent %q, %v", parent, err)
	}
	if uids, err := m.List(); err != nil || len(uids) != 0 || m.Setup(t.Context(), Limits{}) != nil || m.Remove(t.Context(), "a") != nil {
		t.Errorf("List = %v, %v", uids, err)
	}
}

func BenchmarkEnsureAndRemove(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("cgroups need root")
	}
	m, err := New(Config{Root: fmt.Sprintf("/polylet-bench-%d", os.Getpid()), Driver: Cgroupfs, CPUCFSQuota: true})
	if err != nil {
		b.Fatal(err)
	}
	tr := m.(*tree)
	b.Cleanup(func() {
		if top, err := tr.open(tr.kubepods()[:1]); err != nil || top.Destroy() != nil {
			b.Errorf("left behind: %v", err)
		}
	})
	for b.Loop() {
		if _, err := m.Ensure(b.Context(), podOf("x", list("100m", "32Mi"), list("200m", "64Mi"))); err != nil {
			b.Fatal(err)
		}
		if err := m.Remove(b.Context(), "x"); err != nil {
			b.Fatal(err)
		}
	}
}
