package peer

import (
	"strings"
	"sync/atomic"
	"unsafe"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// What is kept of a session's command, to name it to a podsync that comes back:
// after its client has left a session may wait as long as another one goes on, no
// request counts it any more, and a command may be a megabyte.
const (
	// longestNamed and mostNamed are how many bytes and arguments a command has at most
	// that podsync looks at. See ResumeExec in podsync.proto.
	longestNamed = 4 << 10
	mostNamed    = 256
	// mostKept is what the commands of all sessions take at most, in bytes: as much as
	// those of all streams at once and of all sessions that may wait in podsync.
	mostKept = 8 << 20
	// mostProgram is how much of a program's name is kept, in bytes.
	mostProgram = 256
)

// named is a session as it is named to a podsync that comes back.
type named struct {
	containerID string
	began       uint64
	program     string
	// command is nil when it is not kept.
	command []string
	takes   int64
}

// commands counts what the commands of all sessions take.
type commands struct{ kept atomic.Int64 }

// name names a session that podsync has opened. Nothing of command is held but by
// what it returns, which is to be forgotten.
func (c *commands) name(opened *podsyncv1.HoldExecResponse, command []string) named {
	n := named{containerID: opened.GetContainerId(), began: opened.GetBeganTicks()}
	if len(command) > 0 {
		n.program = strings.Clone(command[0][:min(len(command[0]), mostProgram)])
	}
	size := 0
	for _, arg := range command {
		size += len(arg)
	}
	if size > longestNamed || len(command) > mostNamed {
		return n
	}
	n.takes = int64(size) + int64(len(command))*int64(unsafe.Sizeof(""))
	if c.kept.Add(n.takes) > mostKept {
		c.forget(n)
		n.takes = 0
		return n
	}
	n.command = make([]string, len(command))
	for i, arg := range command {
		n.command[i] = strings.Clone(arg) // it may be a piece of the whole request
	}
	return n
}

func (c *commands) forget(n named) { c.kept.Add(-n.takes) }

// resume names the session. A command that is not kept is named as one that is too
// long to be looked at: others' are spared for it, and none is ended as its.
func (n named) resume() *podsyncv1.ResumeExec {
	command := n.command
	if command == nil {
		command = make([]string, mostNamed+1)
		command[0] = n.program
	}
	return &podsyncv1.ResumeExec{ContainerId: n.containerID, Command: command, BeganTicks: n.began}
}
