package kernellog

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/euank/go-kmsg-parser/kmsgparser"
	"github.com/google/cadvisor/utils/oomparser"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
)

// What kernels write of a kill, without what stands between these lines: stacks, counts
// of pages and tables of processes.
var kills = map[string]struct {
	lines []string
	want  Kill
}{
	"4.19, of a cgroup": {
		[]string{
			"stress invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=985",
			"stress cpuset=4f1c mems_allowed=0",
			"Task in /kubepods/burstable/pod7b1d/4f1c killed as a result of limit of /kubepods/burstable/pod7b1d",
			"Memory cgroup stats for /kubepods/burstable/pod7b1d/4f1c: cache:0KB rss:65284KB rss_huge:0KB shmem:0KB",
			"Memory cgroup out of memory: Kill process 4321 (stress) score 1966 or sacrifice child",
			"Killed process 4321 (stress) total-vm:270372kB, anon-rss:64556kB, file-rss:272kB, shmem-rss:0kB",
			"oom_reaper: reaped process 4321 (stress), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
		},
		Kill{Process: "stress", PID: 4321, Cgroup: "/kubepods/burstable/pod7b1d/4f1c", Limit: "/kubepods/burstable/pod7b1d"},
	},
	"4.19, of a child in place of who was chosen": {
		[]string{
			"cp invoked oom-killer: gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null), order=0, oom_score_adj=-998",
			"Task in /kubepods/pod951f/0249 killed as a result of limit of /kubepods/pod951f/0249",
			"Memory cgroup out of memory: Kill process 62685 (bash) score 0 or sacrifice child",
			"Killed process 62769 (cp) total-vm:17528kB, anon-rss:1436kB, file-rss:2072kB, shmem-rss:0kB",
		},
		Kill{Process: "cp", PID: 62769, Cgroup: "/kubepods/pod951f/0249", Limit: "/kubepods/pod951f/0249"},
	},
	"4.19, of the machine": {
		[]string{
			"java invoked oom-killer: gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null), order=0, oom_score_adj=0",
			"Out of memory: Kill process 18694 (java) score 246 or sacrifice child",
			"Killed process 18694 (java) total-vm:1972392kB, anon-rss:1953348kB, file-rss:0kB, shmem-rss:0kB",
		},
		Kill{Process: "java", PID: 18694, System: true},
	},
	"5.0, of a cgroup": {
		[]string{
			"stress invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), order=0, oom_score_adj=985",
			"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=4f1c,mems_allowed=0,oom_memcg=/kubepods/pod7b1d,task_memcg=/kubepods/pod7b1d/4f1c,task=stress,pid=4321,uid=0",
			"Memory cgroup out of memory: Kill process 4321 (stress) score 1966 or sacrifice child",
			"Killed process 4321 (stress) total-vm:270372kB, anon-rss:64556kB, file-rss:272kB, shmem-rss:0kB",
		},
		Kill{Process: "stress", PID: 4321, Cgroup: "/kubepods/pod7b1d/4f1c", Limit: "/kubepods/pod7b1d"},
	},
	"5.4, of a cgroup": {
		[]string{
			"uwsgi invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=986",
			"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=9a2e,mems_allowed=0,oom_memcg=/kubepods/burstable/pod30c4,task_memcg=/kubepods/burstable/pod30c4/9a2e,task=uwsgi,pid=63214,uid=0",
			"Memory cgroup out of memory: Killed process 63214 (uwsgi) total-vm:3149468kB, anon-rss:164992kB, file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:986",
		},
		Kill{Process: "uwsgi", PID: 63214, Cgroup: "/kubepods/burstable/pod30c4/9a2e", Limit: "/kubepods/burstable/pod30c4"},
	},
	"5.15, of a scope of systemd's": {
		[]string{
			"pt_main_thread invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=985",
			"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-ec9e.scope,mems_allowed=0-1,oom_memcg=/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podeded_8c65.slice,task_memcg=/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podeded_8c65.slice/cri-containerd-ec9e.scope,task=pt_main_thread,pid=461754,uid=0",
			"Memory cgroup out of memory: Killed process 461754 (pt_main_thread) total-vm:9149468kB, anon-rss:164992kB, file-rss:52176kB, shmem-rss:92kB, UID:0 pgtables:1372kB oom_score_adj:985",
		},
		Kill{
			Process: "pt_main_thread", PID: 461754,
			Cgroup: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podeded_8c65.slice/cri-containerd-ec9e.scope",
			Limit:  "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podeded_8c65.slice",
		},
	},
	"6.1, of a container whose processes go together, and the one who was chosen twice": {
		[]string{
			"stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=985",
			"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=4f1c,mems_allowed=0,oom_memcg=/kubepods/pod7b1d,task_memcg=/kubepods/pod7b1d/4f1c,task=stress,pid=4321,uid=0",
			"Memory cgroup out of memory: Killed process 4321 (stress) total-vm:270372kB, anon-rss:64556kB, file-rss:272kB, shmem-rss:0kB, UID:0 pgtables:172kB oom_score_adj:985",
			"Tasks in /kubepods/pod7b1d/4f1c are going to be killed due to memory.oom.group set",
			"Memory cgroup out of memory: Killed process 4300 (sh) total-vm:2372kB, anon-rss:56kB, file-rss:272kB, shmem-rss:0kB, UID:0 pgtables:44kB oom_score_adj:985",
			"Memory cgroup out of memory: Killed process 4321 (stress) total-vm:270372kB, anon-rss:64556kB, file-rss:272kB, shmem-rss:0kB, UID:0 pgtables:172kB oom_score_adj:985",
		},
		Kill{Process: "stress", PID: 4321, Cgroup: "/kubepods/pod7b1d/4f1c", Limit: "/kubepods/pod7b1d"},
	},
	"6.1, of the machine": {
		[]string{
			"stress invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=1000",
			"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=4f1c,mems_allowed=0,global_oom,task_memcg=/kubepods/besteffort/pod7b1d/4f1c,task=stress,pid=4321,uid=0",
			"Out of memory: Killed process 4321 (stress) total-vm:8270372kB, anon-rss:7864556kB, file-rss:272kB, shmem-rss:0kB, UID:0 pgtables:16372kB oom_score_adj:1000",
		},
		Kill{Process: "stress", PID: 4321, Cgroup: "/kubepods/besteffort/pod7b1d/4f1c", System: true},
	},
}

// lines gives cAdvisor's parser what the kernel's log would.
type lines chan kmsgparser.Message

func (l lines) Parse() <-chan kmsgparser.Message { return l }
func (lines) SeekEnd() error                     { return nil }
func (lines) SetLogger(kmsgparser.Logger)        {}
func (lines) Close() error                       { return nil }

// logOf is where a parser of cAdvisor's reads: it opens the machine's own log and takes no other.
func logOf(p *oomparser.OomParser) *kmsgparser.Parser {
	field := reflect.ValueOf(p).Elem().FieldByName("parser")
	return (*kmsgparser.Parser)(unsafe.Pointer(field.UnsafeAddr())) //nolint:gosec // Its field, of this type.
}

// cadvisors are the kills that cAdvisor's parser finds in lines.
func cadvisors(text []string) (out []oomparser.OomInstance) {
	in := make(lines, len(text))
	for _, line := range text {
		in <- kmsgparser.Message{Message: line}
	}
	close(in)
	parser, found := &oomparser.OomParser{}, make(chan *oomparser.OomInstance, len(text))
	*logOf(parser) = in
	parser.StreamOoms(found)
	close(found)
	for k := range found {
		if k.Pid != 0 { // It tells of one that it has found the beginning of.
			out = append(out, *k)
		}
	}
	return out
}

// ours are the kills that are found in lines that the kernel has written.
func ours(text []string) (out []Kill) {
	reader := newKillReader()
	for i, line := range text {
		record, ok := ParseRecord(fmt.Appendf(nil, "4,%d,5000000,-;%s\n", i, line))
		if !ok {
			continue
		}
		if k, ok := reader.read(record, time.Unix(0, 0)); ok {
			k.Sequence, k.Time = 0, time.Time{}
			out = append(out, k)
		}
	}
	return out
}

// alike compares a kill with what cAdvisor says of it, which knows no cgroup where the
// machine had no memory left and no other way to say that it was the machine.
func alike(k Kill, theirs oomparser.OomInstance) error {
	cgroup, limit := k.Cgroup, k.Limit
	if k.System {
		cgroup, limit = "/", "/"
	}
	if k.PID != theirs.Pid || k.Process != theirs.ProcessName || cgroup != theirs.ContainerName || limit != theirs.VictimContainerName {
		return fmt.Errorf("%+v; cAdvisor says %+v", k, theirs)
	}
	return nil
}

func TestKillsOfEachKernelAreReadAsCadvisorsParserReadsThem(t *testing.T) {
	for name, c := range kills {
		got, theirs := ours(c.lines), cadvisors(c.lines)
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
			continue
		}
		if len(theirs) != 1 {
			t.Errorf("%s: cAdvisor finds %+v", name, theirs)
			continue
		}
		if err := alike(got[0], theirs[0]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAKillAfterThatOfAWholeContainerIsOneOfItsOwn: what goes with the first ends where the next
// begins.
func TestAKillAfterThatOfAWholeContainerIsOneOfItsOwn(t *testing.T) {
	together := kills["6.1, of a container whose processes go together, and the one who was chosen twice"]
	machine := kills["6.1, of the machine"]
	got := ours(slices.Concat(together.lines, machine.lines, together.lines))
	if want := []Kill{together.want, machine.want, together.want}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestOfManyContainersThatAreKilledAtOnceEachIsTold: of more than ten in five seconds the kernel
// says no more than that they are killed.
func TestOfManyContainersThatAreKilledAtOnceEachIsTold(t *testing.T) {
	together := kills["6.1, of a container whose processes go together, and the one who was chosen twice"]
	const killed = "Memory cgroup out of memory: Killed process 200 (victim) total-vm:9kB"
	got := ours(slices.Concat(together.lines, []string{
		killed,
		"Tasks in /kubepods/b are going to be killed due to memory.oom.group set",
		"Memory cgroup out of memory: Killed process 201 (other) total-vm:9kB",
		killed,
		"Out of memory: Killed process 300 (machine) total-vm:9kB",
	}))
	want := []Kill{together.want, {Process: "victim", PID: 200}, {Process: "machine", PID: 300, System: true}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Where a kill is not read as cAdvisor's parser does, why is here. When that changes its
// ways, this says so.
func TestWhereCadvisorsParserIsNotFollowed(t *testing.T) {
	const killed = "Memory cgroup out of memory: Killed process 42 (eater) total-vm:9kB"
	for name, c := range map[string]struct {
		lines  []string
		want   []Kill
		theirs []oomparser.OomInstance
	}{
		// After ten in five seconds the kernel leaves out all but the kill itself.
		"one whose beginning the kernel left out": {[]string{killed}, []Kill{{Process: "eater", PID: 42}}, nil},
		// A process chooses its name, and could put the blame on another pod.
		"one who is called as the next field": {
			[]string{
				"x,task=/b invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
				"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/a,task_memcg=/a,task=x,task=/b,pid=42,uid=0",
				"Memory cgroup out of memory: Killed process 42 (x,task=/b) total-vm:9kB",
			},
			[]Kill{{Process: "x,task=/b", PID: 42, Cgroup: "/a", Limit: "/a"}},
			[]oomparser.OomInstance{{Pid: 42, ProcessName: "/b", ContainerName: "/a,task=x", VictimContainerName: "/a", Constraint: "CONSTRAINT_MEMCG"}},
		},
		"one who is only called so": {
			[]string{"invoked oom-killer:: segfault at 0", "Killed process 1 (x): segfault at 0"},
			nil,
			[]oomparser.OomInstance{{Pid: 1, ProcessName: "x", ContainerName: "/", VictimContainerName: "/"}},
		},
		// 5.0 tells of who was chosen, and kills a child.
		"a child in place of who was chosen": {
			[]string{
				"cp invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), order=0, oom_score_adj=0",
				"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/a,task_memcg=/a,task=bash,pid=41,uid=0",
				"Memory cgroup out of memory: Kill process 41 (bash) score 0 or sacrifice child",
				"Killed process 42 (cp) total-vm:9kB, anon-rss:9kB, file-rss:0kB, shmem-rss:0kB",
			},
			[]Kill{{Process: "cp", PID: 42, Cgroup: "/a", Limit: "/a"}},
			[]oomparser.OomInstance{{Pid: 41, ProcessName: "bash", ContainerName: "/a", VictimContainerName: "/a", Constraint: "CONSTRAINT_MEMCG"}},
		},
	} {
		if got := ours(c.lines); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got := cadvisors(c.lines); !reflect.DeepEqual(got, c.theirs) {
			t.Errorf("%s: cAdvisor finds %+v, and did find %+v", name, got, c.theirs)
		}
	}
}

// killAChild has the kernel kill a child of a process in a cgroup of its own, and says
// which that was. The process lives on.
func killAChild(t *testing.T) (name string) {
	t.Helper()
	hierarchy, err := cgroup.Detect()
	if err != nil || os.Geteuid() != 0 {
		t.Skipf("making a cgroup needs root: %v", err)
	}
	name = fmt.Sprintf("/polylet-kill-test-%d", os.Getpid())
	controller, file := "memory", "memory.limit_in_bytes"
	if hierarchy.Unified() {
		controller, file = "", "memory.max"
	}
	dir := hierarchy.Dir(controller, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		eventually.Nil(t, func() error { return os.Remove(dir) })
	})
	if err := os.WriteFile(filepath.Join(dir, file), []byte("16777216"), 0o644); err != nil {
		t.Skipf("no memory limit can be set here: %v", err)
	}
	out, err := exec.Command("sh", "-c", `echo $$ > "$0" && { tail /dev/zero; echo "lives, the other ended with $?"; }`, filepath.Join(dir, "cgroup.procs")).Output()
	if err != nil || !strings.Contains(string(out), "lives, the other ended with 137") {
		t.Fatalf("%v: %s", err, out)
	}
	return name
}

func TestAKillOfThisKernelIsReadAsCadvisorsParserReadsIt(t *testing.T) {
	own, err := Open()
	if err != nil {
		t.Skip(err)
	}
	defer own.Close()
	parser, err := oomparser.New()
	if err != nil {
		t.Skip(err)
	}
	found := make(chan *oomparser.OomInstance, 1000)
	go parser.StreamOoms(found)
	defer func() { _ = (*logOf(parser)).Close() }()

	name := killAChild(t)
	var theirs *oomparser.OomInstance
	for over := time.After(time.Minute); theirs == nil; {
		select {
		case k := <-found:
			if k.ContainerName == name {
				theirs = k
			}
		case <-over:
			t.Fatal("cAdvisor's parser does not find the kill")
		}
	}
	reader, buffer := newKillReader(), make([]byte, longestRecord)
	for {
		n, err := own.Read(buffer)
		if errors.Is(err, syscall.EPIPE) {
			continue // Older records were overwritten before they were read.
		}
		if err != nil {
			t.Fatalf("the kill is not found: %v", err)
		}
		record, ok := ParseRecord(buffer[:n])
		if !ok {
			t.Fatalf("no record: %q", buffer[:n])
		}
		k, ok := reader.read(record, Boot())
		if !ok || k.Cgroup != name {
			continue
		}
		t.Logf("%+v", k)
		// It knows the time of the machine's start to the second.
		if err := alike(k, *theirs); err != nil || k.Process != "tail" || k.Time.Sub(theirs.TimeOfDeath).Abs() > 2*time.Second {
			t.Errorf("%v; %s and %s", err, k.Time, theirs.TimeOfDeath)
		}
		return
	}
}
