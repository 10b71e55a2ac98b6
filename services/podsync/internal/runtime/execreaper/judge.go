package execreaper

import (
	"path"
	"slices"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, in which Linux counts when a process started.
const ticksPerSecond = 100

// Windows after a session began. A command starts within milliseconds; a busy
// machine and a runtime that waits for its client's streams make it longer.
const (
	// claimWithin is how late a process may have started to be ended as the
	// session's.
	claimWithin = uint64(time.Minute/time.Second) * ticksPerSecond
	// spareWithin is how late a process may have started to be spared because
	// it may be that of a session that goes on.
	spareWithin = 3 * claimWithin
)

// Of a command as long as a client can ask for it costs seconds to say what it may
// have become, and each session is held against each process.
const (
	// longest is how many bytes of arguments a command has at most that is looked at.
	longest = 4 << 10
	// mostOfOne is how many arguments.
	mostOfOne = 256
)

// known is a command, nil when it is too long to be looked at.
func known(argv []string) []string {
	size := 0
	for _, arg := range argv {
		size += len(arg)
	}
	if size > longest || len(argv) > mostOfOne {
		return nil
	}
	return argv
}

// Session is what is known of one session.
type Session struct {
	// Began is in ticks since the machine's start; the command starts then or
	// later.
	Began uint64
	// Argv is the command as it was asked for; nil when it is too long: it may have
	// become anything, so while the session goes on it spares what it may be, and
	// when its client has left nothing is ended for it.
	Argv []string
	// Left says that the client has left; one that ended is not there at all.
	Left bool
}

// Root is a process in a container that was started from outside of it.
type Root struct {
	// Start is in ticks since the machine's start.
	Start uint64
	// Argv is the command as it is now: a program may have taken its place. nil when
	// it is too long, or not known.
	Argv []string
}

// Ruling is what becomes of one Root.
type Ruling struct {
	// Claims are the sessions without a client whose command it may be.
	Claims []int
	// Spared says that it may be the command of a session that goes on: it is to
	// be judged again when one has ended. Otherwise it is to be ended if anybody
	// claims it.
	Spared bool
}

// How well a process fits a session.
const (
	fitsNot uint8 = iota
	fitsInTime
	// fitsAkin: what runs is named in the command, as sleep in sh -c 'exec sleep 9'.
	fitsAkin
	// fitsSaid: so are its arguments, or nobody can say what the command makes of them.
	fitsSaid
	fitsEqual
)

// Judge says for each root whose command it is. A session has one root at most,
// and may have none: its command has not started yet, or has ended just now.
//
// A root may be the command of any session that had begun by its start; if it is just
// what some of them asked for, only of those and of such as name its program, and its
// arguments too where the client has left: such a one may have no command any more, and
// would take the place of all that its text names. It belongs to a session for certain
// when no other that has none for certain may have it. What may belong to a session that
// goes on is spared.
func Judge(sessions []Session, roots []Root) []Ruling {
	m := match{sessions: sessions, roots: roots, fitting: make([][]uint8, len(roots)), owner: make([]int, len(roots)), settled: make([]bool, len(sessions))}
	m.possible = make([][]bool, len(roots))
	says := make([]map[string]bool, len(sessions))
	for s := range sessions {
		says[s] = wordsOf(sessions[s].Argv)
	}
	for r := range roots {
		m.fitting[r] = make([]uint8, len(sessions))
		given := wordsOf(roots[r].Argv)
		for s := range sessions {
			m.fitting[r][s] = fits(sessions[s], says[s], roots[r], given)
		}
		m.owner[r], m.possible[r] = -1, possible(sessions, m.fitting[r])
	}
	for m.settle(fitsEqual) || m.settle(fitsAkin) || m.settle(fitsInTime) {
	}
	out := make([]Ruling, len(roots))
	for r := range roots {
		for s := range sessions {
			switch {
			case !m.may(s, r):
			case !sessions[s].Left:
				out[r].Spared = true
			case m.fitting[r][s] >= fitsAkin && roots[r].Start-sessions[s].Began <= claimWithin:
				out[r].Claims = append(out[r].Claims, s)
			}
		}
	}
	return out
}

// possible says which of the sessions may have started a root that fits them so.
func possible(sessions []Session, fitting []uint8) []bool {
	least := fitsInTime
	if slices.Contains(fitting, fitsEqual) {
		least = fitsSaid
	}
	out := make([]bool, len(sessions))
	for s, f := range fitting {
		out[s] = f >= least || f == fitsInTime && sessions[s].Argv == nil
	}
	return out
}

// match assigns roots to sessions.
type match struct {
	sessions []Session
	roots    []Root
	possible [][]bool  // by root and session
	fitting  [][]uint8 // how well, likewise
	owner    []int     // of each root; -1 is not certain
	settled  []bool    // sessions that own a root for certain
}

// may says whether a root may be a session's command.
func (m match) may(s, r int) bool {
	return m.possible[r][s] && (m.owner[r] == s || m.owner[r] < 0 && !m.settled[s])
}

// settle gives a root to the only session that may have it and that it fits so well
// at least, and says whether there was one. What fits best comes first: a process that
// nobody owns any more is not to take the place of a session's own.
func (m match) settle(least uint8) bool {
	for r := range m.roots {
		only, n := -1, 0
		for s := range m.sessions {
			if m.may(s, r) {
				only, n = s, n+1
			}
		}
		if n == 1 && m.owner[r] < 0 && m.fitting[r][only] >= least {
			m.owner[r], m.settled[only] = only, true
			return true
		}
	}
	return false
}

// fits says how well; says are the words of the session's arguments, given those of
// the root's.
func fits(s Session, says map[string]bool, r Root, given map[string]bool) uint8 {
	switch {
	case r.Start < s.Began || r.Start-s.Began > spareWithin:
		return fitsNot
	case len(s.Argv) == 0 || len(r.Argv) == 0:
		return fitsInTime
	case slices.Equal(s.Argv, r.Argv):
		return fitsEqual
	case !sameCommand(s.Argv, says, r.Argv):
		return fitsInTime
	case s.Left && literal(s.Argv, says) && !all(says, given):
		return fitsAkin
	}
	return fitsSaid
}

// shells take a text behind -c.
var shells = []string{"sh", "ash", "bash", "dash", "ksh", "zsh"}

// literal says whether a command is a shell's text that has each word of what it may
// become: nothing in it stands for something else. Whatever is no such text may make
// its arguments as it likes.
func literal(asked []string, says map[string]bool) bool {
	if len(asked) != 3 || !slices.Contains(shells, name(asked[0])) || !strings.HasPrefix(asked[1], "-") || !strings.HasSuffix(asked[1], "c") {
		return false
	}
	return !strings.ContainsAny(asked[2], "$`*?[]{}~\\'\"<") && !says["."] && !says["source"]
}

// all says whether each of the words is said.
func all(said, words map[string]bool) bool {
	for word := range words {
		if !said[word] {
			return false
		}
	}
	return true
}

// sameCommand says whether a command that was asked for may have become what runs: its
// text names the program, or it is a script and the program its interpreter.
func sameCommand(asked []string, says map[string]bool, runs []string) bool {
	program := name(runs[0])
	if program == name(asked[0]) {
		// A wrapper hands its arguments on; who has a title shows none.
		rest, own := runs[1:], asked[1:]
		if strings.Contains(runs[0], ":") || len(rest) >= len(own) && slices.Equal(rest[len(rest)-len(own):], own) {
			return true
		}
	}
	if program != "" && says[program] {
		return true
	}
	script := len(runs) - len(asked) // where it is among what its interpreter was given
	return script > 0 && name(runs[script]) == name(asked[0]) && slices.Equal(runs[script+1:], asked[1:])
}

// wordsOf are those of a command's arguments.
func wordsOf(asked []string) map[string]bool {
	if len(asked) == 0 {
		return nil
	}
	out := map[string]bool{}
	for _, arg := range asked[1:] {
		for word := range strings.FieldsFuncSeq(arg, notInName) {
			out[word] = true
		}
	}
	return out
}

// name is a program's without its directory; a login shell's begins with "-",
// and a program that titles itself writes "name: what it does".
func name(arg0 string) string {
	word, _, _ := strings.Cut(arg0, " ")
	return strings.TrimSuffix(strings.TrimPrefix(path.Base(word), "-"), ":")
}

func notInName(r rune) bool {
	return r <= ' ' || strings.ContainsRune(`/'"`+"`"+`|&;<>()$={}[]\,:`, r)
}
