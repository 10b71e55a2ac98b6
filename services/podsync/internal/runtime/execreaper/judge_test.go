package execreaper

import (
	"fmt"
	"strings"
	"testing"
)

// One line is one thing: "left 100 sh -c x" and "live 100 sh" are sessions by
// when they began, in ticks; "root 105 sh" is a process, and what follows "->"
// what becomes of it: end, spare, or stay.
func TestACommandIsEndedWhenItIsCertainlyThatOfASessionWhoseClientLeft(t *testing.T) {
	for _, c := range []struct{ name, world string }{
		{"one session, one command", `
			left 100 sleep 9
			root 105 sleep 9 -> end`},
		{"nobody left", `
			live 100 sleep 9
			root 105 sleep 9 -> spare`},
		{"nobody is there", `
			root 105 sleep 9 -> stay`},
		{"a command may start in the same tick", `
			left 100 sleep 9
			root 100 sleep 9 -> end`},
		{"what was there before is not the session's", `
			left 100 sleep 9
			root 99 sleep 9 -> stay`},
		{"what came long after is not the session's", `
			left 100 sleep 9
			root 6100 sleep 9 -> end
			root 6101 sleep 9 -> stay`},
		{"another command is not the session's", `
			left 100 sleep 9
			root 105 sleep 8 -> stay
			root 105 yes -> stay`},
		{"what another left behind takes no session's place", `
			left 100 sh 2
			root 105 sh 1 -> stay
			root 106 sh 2 -> end`},
		{"a shell that has become its command", `
			left 100 sh -c 'exec /bin/sleep 9'
			root 105 sleep 9 -> end`},
		{"a script whose interpreter runs", `
			left 100 /opt/run.sh a b
			root 105 /bin/bash /opt/run.sh a b -> end`},
		{"a script with other arguments is another", `
			left 100 /opt/run.sh a b
			root 105 /bin/bash /opt/run.sh a c -> stay`},
		{"a wrapper that hands its arguments on", `
			left 100 app a b
			root 105 /opt/bin/app --fast a b -> end
			root 105 /opt/bin/app --fast a c -> stay`},
		{"a login shell and a program with a title", `
			left 100 bash
			left 200 /usr/bin/postgres -D x
			root 105 -bash -> end
			root 205 postgres: writer -> end`},
		{"the runtime's own start is not a command yet", `
			left 100 sleep 9
			root 105 runc init -> stay`},
		{"two equal ones begun apart: the first left", `
			left 100 sh
			live 200 sh
			root 105 sh -> end
			root 205 sh -> spare`},
		{"two equal ones begun apart: the second left", `
			live 100 sh
			left 200 sh
			root 105 sh -> spare
			root 205 sh -> end`},
		{"two equal ones begun together: either may be either's", `
			live 100 sh
			left 101 sh
			root 105 sh -> spare
			root 106 sh -> spare`},
		{"both of them left", `
			left 100 sh
			left 101 sh
			root 105 sh -> end
			root 106 sh -> end`},
		{"the one that goes on has no command yet, or not any more", `
			live 110 sh
			left 100 sh
			root 115 sh -> spare`},
		{"a third tells the others apart", `
			live 100 sh
			live 300 sh
			left 200 sh
			root 105 sh -> spare
			root 205 sh -> end
			root 305 sh -> spare`},
		{"sessions with other commands do not matter when theirs are there", `
			live 100 top
			live 100 sh -c 'exec sleep 5'
			left 100 yes
			root 103 top -> spare
			root 104 sleep 5 -> spare
			root 105 yes -> end`},
		{"a command that is too long to be looked at may be anything while it goes on", `
			live 100
			left 101 sleep 9
			root 105 sleep 9 -> spare
			root 106 yes -> spare`},
		{"and when its client has left nothing is ended for it", `
			left 100
			left 101 sleep 9
			root 105 sleep 9 -> end
			root 106 yes -> stay`},
		{"a process whose command is too long is nobody's but in time", `
			live 100 top
			left 101 sleep 9
			root 105 -> spare
			root 106 sleep 9 -> end`},
		{"a session whose command became something else owns what nobody else can", `
			live 100 ./start
			left 100 yes
			root 104 java -jar x -> spare
			root 105 yes -> end`},
		{"a session whose command is not seen may own anything of its time", `
			live 100 sh -c sh
			left 100 sh
			root 105 sh -> spare`},
		{"a probe that is in flight owns its process", `
			live 400 cat /healthy
			left 100 cat /healthy
			root 402 cat /healthy -> spare
			root 105 cat /healthy -> end`},
		{"a session far younger than a process has not started it", `
			live 500 sh
			left 100 sh
			root 105 sh -> end`},
		{"a session far older than a process has not started it", `
			live 100 ./start
			left 20000 sh
			root 20005 sh -> end`},
		{"one that was left and has no command any more is not in the way of two equal ones", `
			left 100 sh -c 'sleep 8; echo over'
			live 200 sleep 9
			left 300 sleep 9
			root 205 sleep 9 -> spare
			root 305 sleep 9 -> end`},
		{"but it is where its text has their arguments", `
			left 100 sh -c 'exec sleep 9'
			live 200 sleep 9
			left 300 sleep 9
			root 205 sleep 9 -> spare
			root 305 sleep 9 -> spare`},
		{"and where its text computes them", `
			left 100 sh -c 'exec sleep $LONG'
			left 101 xargs sleep
			live 200 sleep 9
			left 300 sleep 9
			root 205 sleep 9 -> spare
			root 305 sleep 9 -> spare`},
		{"and while it goes on", `
			live 100 sh -c 'sleep 8; echo over'
			live 200 sleep 9
			left 300 sleep 9
			root 205 sleep 9 -> spare
			root 305 sleep 9 -> spare`},
		{"what its text names is its all the same while nobody asked for just that", `
			left 100 sh -c 'sleep 8; ./start sleep'
			root 105 sleep 9 -> end`},
		{"a command that has no arguments to show is nobody's", `
			left 100 sh
			root 105 -> stay`},
	} {
		t.Run(c.name, func(t *testing.T) {
			sessions, list, want := world(t, c.world)
			for r, ruling := range Judge(sessions, list) {
				got := "stay"
				switch {
				case ruling.Spared:
					got = "spare"
				case len(ruling.Claims) > 0:
					got = "end"
				}
				if got != want[r] {
					t.Errorf("root %d %v: %s, want %s (%+v)", list[r].Start, list[r].Argv, got, want[r], ruling)
				}
			}
		})
	}
}

func world(t *testing.T, text string) (sessions []Session, list []Root, want []string) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line, fate, _ := strings.Cut(strings.TrimSpace(line), "->")
		var kind string
		var at uint64
		if _, err := fmt.Sscan(line, &kind, &at); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		argv := words(strings.TrimSpace(strings.SplitN(line, fmt.Sprint(at), 2)[1]))
		if kind == "root" {
			list, want = append(list, Root{Start: at, Argv: argv}), append(want, strings.TrimSpace(fate))
		} else {
			sessions = append(sessions, Session{Began: at, Argv: argv, Left: kind == "left"})
		}
	}
	return sessions, list, want
}

// words splits at spaces, but not between single quotes.
func words(text string) (out []string) {
	for i, part := range strings.Split(text, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// Whatever the world, a process that a session which goes on has started is
// never ended: the roots here are made by sessions, and who made which is kept.
func FuzzTheCommandOfASessionThatGoesOnIsNeverEnded(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{0x10, 0x10, 0x91, 0x20, 0x20, 0x10})
	commands := [][]string{{"sh"}, {"sh", "-c", "sh"}, {"sh", "-c", "exec sleep 9"}, {"sleep", "9"}, {"sh", "-c", "exec sleep 8"}, {"sh", "-c", "exec sleep $N"}, {"sleep", "8"}, {"yes"}}
	becomes := [][]string{{"sh"}, {"sh"}, {"sleep", "9"}, {"sleep", "9"}, {"sleep", "8"}, {"sleep", "9"}, {"sleep", "8"}, {"yes"}}
	f.Fuzz(func(t *testing.T, world []byte) {
		var sessions []Session
		var list []Root
		var made []int
		for i := 0; i+2 < len(world) && len(sessions) < 12; i += 3 {
			kind, lag := world[i], uint64(world[i+2])
			which := kind&3 | kind>>3&4
			s := Session{Began: uint64(world[i+1]), Argv: commands[which], Left: kind&4 != 0}
			sessions = append(sessions, s)
			if kind&8 == 0 { // it has started, and not ended yet
				argv := s.Argv
				if kind&16 != 0 {
					argv = becomes[which]
				}
				list, made = append(list, Root{Start: s.Began + lag, Argv: argv}), append(made, len(sessions)-1)
			}
		}
		for r, ruling := range Judge(sessions, list) {
			if !sessions[made[r]].Left && !ruling.Spared {
				t.Errorf("the command %v of %+v is not spared among %+v and %+v", list[r], sessions[made[r]], sessions, list)
			}
			for _, s := range ruling.Claims {
				if !sessions[s].Left {
					t.Errorf("%+v goes on and claims %v", sessions[s], list[r])
				}
			}
		}
	})
}

// TestACommandIsLookedAtUpToItsBounds is what ResumeExec in podsync.proto says: who
// holds sessions keeps no more of a command.
func TestACommandIsLookedAtUpToItsBounds(t *testing.T) {
	for name, c := range map[string]struct {
		argv     []string
		lookedAt bool
	}{
		"4096 bytes":           {[]string{"sh", strings.Repeat("x", 4094)}, true},
		"4097 bytes":           {[]string{"sh", strings.Repeat("x", 4095)}, false},
		"256 arguments":        {append([]string{"sh"}, make([]string, 255)...), true},
		"256 behind a program": {append([]string{"sh"}, make([]string, 256)...), false},
	} {
		if got := known(c.argv) != nil; got != c.lookedAt {
			t.Errorf("%s: looked at: %v", name, got)
		}
	}
}
