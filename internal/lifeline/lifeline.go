// Package lifeline is how a process that polylet run started says that it still
// answers: a pipe that nobody else can write to, where a unit of systemd has
// NOTIFY_SOCKET.
//
// It owns the pipe's form and the variable that names it. It must never judge what
// silence means.
package lifeline

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Variable names the pipe to the child: "<file descriptor> <how often>".
const Variable = "POLYLET_LIFELINE"

// Value is what the variable holds for a pipe that is the child's file descriptor fd,
// on which it is to say something at least every so often.
func Value(fd int, every time.Duration) string { return fmt.Sprintf("%d %s", fd, every) }

// Line is the child's end.
type Line struct {
	// Every is how often the process is to say that it answers, at least.
	Every time.Duration
	file  *os.File
}

// Open takes the pipe that the process was given, by the value of its Variable; nil
// when that is empty. What the process executes does not get it. Call it once.
func Open(value string) (*Line, error) {
	if value == "" {
		return nil, nil
	}
	number, every, _ := strings.Cut(value, " ")
	fd, fdErr := strconv.Atoi(number)
	interval, err := time.ParseDuration(every)
	if err := errors.Join(fdErr, err); err != nil || fd < 3 || interval <= 0 {
		return nil, fmt.Errorf("%s=%q is not what polylet run writes: %w", Variable, value, errors.Join(err, unix.EINVAL))
	}
	unix.CloseOnExec(fd)
	// A supervisor that does not read must not hold its child up.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s=%q: file descriptor %d: %w", Variable, value, fd, err)
	}
	return &Line{Every: interval, file: os.NewFile(uintptr(fd), "lifeline")}, nil
}

// Say tells the supervisor that the process answers. A pipe that stays full for a
// second has said so already.
func (l *Line) Say() error {
	if l == nil {
		return nil
	}
	if err := l.file.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	if _, err := l.file.Write([]byte{'.'}); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("tell the supervisor: %w", err)
	}
	return nil
}
