package kernellog

import (
	"testing"
	"time"
)

func TestAKillIsReadWithItsCgroup(t *testing.T) {
	boot := time.Unix(1000, 0)
	const killed = "Killed process 42 (eater) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:56kB oom_score_adj:1000"
	for name, c := range map[string]struct {
		lines []string
		want  Kill
	}{
		"of a cgroup": {
			[]string{
				"eater invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000",
				"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c,task=eater,pid=42,uid=0",
				"Memory cgroup out of memory: " + killed,
			},
			Kill{Process: "eater", PID: 42, Cgroup: "/kubepods/pod1/c", Limit: "/kubepods/pod1"},
		},
		"of the machine": {
			[]string{"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/kubepods/pod1/c,task=eater,pid=42,uid=0", "Out of memory: " + killed},
			Kill{Process: "eater", PID: 42, Cgroup: "/kubepods/pod1/c", System: true},
		},
		"of the machine, of who asked for memory": {
			[]string{"Out of memory (oom_kill_allocating_task): " + killed},
			Kill{Process: "eater", PID: 42, System: true},
		},
		"whose cgroups were left out, after one of another": {
			[]string{
				"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/other,task_memcg=/other,task=other,pid=41,uid=0",
				"Memory cgroup out of memory: " + killed,
			},
			Kill{Process: "eater", PID: 42},
		},
		"of a process that calls itself a cgroup's end": {
			[]string{
				"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c,task=x,task=/other,pid=42,uid=0",
				"Memory cgroup out of memory: Killed process 42 (x,task=/other) total-vm:9kB",
			},
			Kill{Process: "x,task=/other", PID: 42, Cgroup: "/kubepods/pod1/c", Limit: "/kubepods/pod1"},
		},
		"of a process that calls itself a kill": {
			[]string{"Memory cgroup out of memory: Killed process 42 (d process 1 (x)) total-vm:9kB"},
			Kill{Process: "d process 1 (x)", PID: 42},
		},
	} {
		reader := newKillReader()
		var got []Kill
		for i, line := range c.lines {
			if k, ok := reader.read(Record{Sequence: uint64(i), SinceBoot: 5 * time.Second, Kernel: true, Text: line}, boot); ok {
				got = append(got, k)
			}
		}
		c.want.Sequence, c.want.Time = uint64(len(c.lines)-1), time.Unix(1005, 0)
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %+v; want %+v", name, got, c.want)
		}
	}
}

func TestWhatOthersWriteIsNoKill(t *testing.T) {
	const line = "Out of memory: Killed process 42 (eater) total-vm:9kB"
	for name, record := range map[string]Record{
		"a program with root":         {Text: line},
		"a process's name in a line":  {Kernel: true, Text: "traps: " + line},
		"a number too large":          {Kernel: true, Text: "Out of memory: Killed process 99999999999999999999 (eater) total-vm:9kB"},
		"a line that stops too early": {Kernel: true, Text: "Out of memory: Killed process 42"},
	} {
		if k, ok := newKillReader().read(record, time.Time{}); ok {
			t.Errorf("%s: %+v", name, k)
		}
	}
}
