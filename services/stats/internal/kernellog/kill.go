package kernellog

import (
	"regexp"
	"strconv"
	"time"
)

// Kill is a process that the kernel has killed for lack of memory.
type Kill struct {
	// Sequence is that of the log's record, which is unique until the machine starts
	// anew.
	Sequence uint64
	// Time is when it was.
	Time time.Time
	// Process is its name as the kernel has it, at most 15 bytes; PID its number.
	Process string
	PID     int
	// System is whether the machine had no memory left; else a cgroup had not.
	System bool
	// Cgroup is the process's, below the root of its hierarchy; Limit the one that had
	// no memory left. Empty where the kernel does not say.
	Cgroup, Limit string
}

// killReader finds kills in records, which have to come in their order.
type killReader struct {
	killed, context *regexp.Regexp
	// of is what the last line of context says, and whom it speaks of.
	of            int
	cgroup, limit string
}

// newKillReader knows what kernels from 5.1 on write. The line that a process was
// killed is always written, the one before it with the cgroups at most ten times in
// five seconds. Both begin their record, so that no process's name can pass for one; and
// a cgroup ends where its next field begins first, for what follows may be of the name.
// Source: the kernel's mm/oom_kill.c.
func newKillReader() *killReader {
	return &killReader{
		killed:  regexp.MustCompile(`^(Memory cgroup out of memory|Out of memory(?: \([a-z_]+\))?): Killed process (\d+) \((.*)\) total-vm:`),
		context: regexp.MustCompile(`^oom-kill:constraint=[A-Z_]+,nodemask=.*?(?:,oom_memcg=(.*?))?(?:,global_oom)?,task_memcg=(.*?),task=.*,pid=(\d+),uid=\d+$`),
	}
}

// read returns the kill that a record tells of; false when it tells of none.
func (r *killReader) read(record Record, boot time.Time) (Kill, bool) {
	if !record.Kernel {
		return Kill{}, false
	}
	if m := r.context.FindStringSubmatch(record.Text); m != nil {
		if pid, err := strconv.Atoi(m[3]); err == nil {
			r.of, r.limit, r.cgroup = pid, m[1], m[2]
		}
		return Kill{}, false
	}
	m := r.killed.FindStringSubmatch(record.Text)
	if m == nil {
		return Kill{}, false
	}
	pid, err := strconv.Atoi(m[2])
	if err != nil {
		return Kill{}, false
	}
	out := Kill{
		Sequence: record.Sequence, Time: boot.Add(record.SinceBoot), Process: m[3], PID: pid,
		System: m[1] != "Memory cgroup out of memory",
	}
	if pid == r.of {
		out.Cgroup, out.Limit = r.cgroup, r.limit
	}
	return out, true
}
