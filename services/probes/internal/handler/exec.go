package handler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// What a Commander's errors may wrap.
var (
	// ErrCommandTimeout: the command ran longer than allowed and was killed.
	ErrCommandTimeout = errors.New("command timed out")
	// ErrAway: there is no way to run it now, because podsync is away or the
	// container has just ended.
	ErrAway = errors.New("cannot be run now")
)

// Command is one command in one container.
type Command struct {
	// Target says in which container; its id must be the running one.
	Target probe.Target
	// Args are program and arguments.
	Args []string
	// Timeout kills it.
	Timeout time.Duration
}

// Commander runs a command in a container. Output is stdout and then stderr; it
// is bounded by the handler. Errors wrap ErrCommandTimeout or ErrAway where
// they are that.
type Commander interface {
	RunCommand(ctx context.Context, c Command) (output []byte, exitCode int, err error)
}

// exec succeeds with exit code 0.
func (h *Handlers) exec(ctx context.Context, t probe.Target, a probe.Exec) probe.Answer {
	output, code, err := h.commander.RunCommand(ctx, Command{Target: t, Args: a.Command, Timeout: t.Timeout})
	output = output[:min(len(output), bodyLimit)]
	switch {
	case errors.Is(err, ErrCommandTimeout):
		return failed(fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(a.Command, " "), t.Timeout))
	case errors.Is(err, ErrAway):
		return probe.Answer{Verdict: probe.Skipped, Message: err.Error()}
	case err != nil:
		return errored("%v", err)
	case code != 0:
		return failed(string(output))
	}
	return probe.Answer{Verdict: probe.Passed, Message: string(output)}
}
