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

// ofCgroup is how the kernel begins what it says of a kill for a cgroup's limit.
const ofCgroup = "Memory cgroup out of memory"

// killReader finds kills in records, which have to come in their order.
type killReader struct {
	killed, context, together *regexp.Regexp
	// last is the newest kill of which nothing says that others go with it.
	last Kill
	// group is of whose processes all are killed with one that was told of; nil: of nobody's.
	group *group
	// said is what the last line of context says.
	said whose
	// Before Linux 5.1: who is chosen is told first, and then who is killed, of whom
	// nothing says whether it was for a cgroup.
	oldContext, oldChosen, oldKilled *regexp.Regexp
	// chosen is what is told of who was chosen last; nil: nothing was.
	chosen *choice
}

// whose is whose process is killed and for whose limit; of is its number, or whoeverIsNext.
type whose struct {
	of            int
	cgroup, limit string
}

// whoeverIsNext is whom a line of context speaks of that has no number: kills are one
// after the other, with their lines.
const whoeverIsNext = -1

// choice is what is known of a kill before it is told of.
type choice struct {
	system        bool
	cgroup, limit string
}

// group are processes that are killed with one that was told of, each with a line like its own.
type group struct {
	// at is when the last line about them was.
	at     time.Time
	system bool
	// newest is the last of them.
	newest Kill
}

// together is how long after one line of a group the next one may come: the kernel writes them
// in one go, and a serial line takes some hundredths of a second for each. The kernel may leave
// out what it says of a kill of its own that comes later, and only the time tells it from these.
const together = 100 * time.Millisecond

// has says whether a kill is of one of the group.
func (g *group) has(k Kill) bool {
	return g != nil && k.System == g.system && k.Time.Sub(g.at) < together
}

// newKillReader knows what kernels write. The line that a process was killed is always
// written, the one before it with the cgroups at most ten times in five seconds. All of
// them begin their record, so that no process's name can pass for one; and a cgroup ends
// where its next field begins first, for what follows may be of the name.
// Source: the kernel's mm/oom_kill.c, and before 5.0 mm/memcontrol.c.
func newKillReader() *killReader {
	return &killReader{
		killed:  regexp.MustCompile(`^(` + ofCgroup + `|Out of memory(?: \([a-z_]+\))?): Killed process (\d+) \((.*)\) total-vm:`),
		context: regexp.MustCompile(`^oom-kill:constraint=[A-Z_]+,nodemask=.*?(?:,oom_memcg=(.*?))?(?:,global_oom)?,task_memcg=(.*?),task=.*,pid=(\d+),uid=\d+$`),
		// Each of them is told of as killed then, the chosen one once more.
		together: regexp.MustCompile(`^Tasks in .* are going to be killed due to memory\.oom\.group set$`),

		oldContext: regexp.MustCompile(`^Task in (.*?) killed as a result of limit of (.*)$`),
		oldChosen:  regexp.MustCompile(`^(` + ofCgroup + `|Out of memory(?: \([a-z_]+\))?): Kill process (\d+) \(.*\) score \d+ or sacrifice child$`),
		oldKilled:  regexp.MustCompile(`^Killed process (\d+) \((.*)\)(?:, UID \d+,)? total-vm:`),
	}
}

// read returns the kill that a record tells of; false when it tells of none.
func (r *killReader) read(record Record, boot time.Time) (Kill, bool) {
	if !record.Kernel || r.readContext(record.Text) {
		return Kill{}, false
	}
	out := Kill{Sequence: record.Sequence, Time: boot.Add(record.SinceBoot)}
	if r.together.MatchString(record.Text) {
		return r.grouped(out.Time)
	}
	if m := r.killed.FindStringSubmatch(record.Text); m != nil {
		var err error
		if out.PID, err = strconv.Atoi(m[2]); err != nil {
			return Kill{}, false
		}
		out.Process, out.System = m[3], m[1] != ofCgroup
		if out.PID == r.said.of {
			out.Cgroup, out.Limit = r.said.cgroup, r.said.limit
		}
		if r.group.has(out) {
			r.group.newest, r.group.at = out, out.Time
			return Kill{}, false
		}
		r.last, r.group = out, nil
		return out, true
	}
	m := r.oldKilled.FindStringSubmatch(record.Text)
	if m == nil || r.chosen == nil {
		return Kill{}, false
	}
	var err error
	if out.PID, err = strconv.Atoi(m[1]); err != nil {
		return Kill{}, false
	}
	out.Process, out.System, out.Cgroup, out.Limit = m[2], r.chosen.system, r.chosen.cgroup, r.chosen.limit
	r.chosen.cgroup, r.chosen.limit = "", "" // Others that go with it may be elsewhere.
	return out, true
}

// grouped takes in that others are killed with the one before. Where that seemed to be one of
// a group, for the kernel left out what it says of each, it is a kill of its own.
func (r *killReader) grouped(at time.Time) (late Kill, found bool) {
	if g := r.group; g != nil && g.newest.PID != 0 && g.newest.PID != r.last.PID {
		r.last, late, found = g.newest, g.newest, true
	}
	r.group = &group{at: at, system: r.last.System}
	return late, found
}

// readContext says whether a line is about a kill that is told of after it.
func (r *killReader) readContext(text string) bool {
	if m := r.context.FindStringSubmatch(text); m != nil {
		if pid, err := strconv.Atoi(m[3]); err == nil {
			r.said = whose{pid, m[2], m[1]}
		}
		r.group = nil
		return true
	}
	if m := r.oldContext.FindStringSubmatch(text); m != nil {
		r.said = whose{whoeverIsNext, m[1], m[2]}
		return true
	}
	m := r.oldChosen.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	r.chosen = &choice{system: m[1] != ofCgroup}
	// A child of who is chosen may go for it; the cgroup is that of who was chosen.
	if pid, err := strconv.Atoi(m[2]); err == nil && (r.said.of == pid || r.said.of == whoeverIsNext) {
		r.chosen.cgroup, r.chosen.limit = r.said.cgroup, r.said.limit
	}
	r.said = whose{}
	return true
}
