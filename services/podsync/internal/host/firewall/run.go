package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// runWithin bounds one program: a table may have many thousand rules.
	runWithin = time.Minute
	// lockWait is how many seconds a program waits for another one.
	lockWait = "5"
	// notFound is iptables' exit status for what is not there.
	notFound = 1
	// mostComplaint is how much of what a program complains about is shown.
	mostComplaint = 500
)

// Runner runs a program of iptables with arguments. That the program ended with
// an error is an *exitError.
type Runner func(ctx context.Context, program string, args ...string) error

// exitError is a program's own failure.
type exitError struct {
	status    int
	complaint string
}

func (e *exitError) Error() string {
	return fmt.Sprintf("exit status %d: %s", e.status, e.complaint)
}

// run runs the machine's own program, without a shell and with nothing of our
// environment but where programs are.
func run(ctx context.Context, program string, args ...string) error {
	path, err := find(program, filepath.SplitList(os.Getenv("PATH")))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, runWithin)
	defer cancel()
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, path, append([]string{"-w", lockWait}, args...)...) //nolint:gosec // The program and its arguments are named in this package.
	cmd.Env, cmd.Stderr, cmd.WaitDelay = []string{"PATH=" + os.Getenv("PATH")}, &complaint, time.Second
	err = cmd.Run()
	var exited *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s did not end: %w", path, strings.Join(args, " "), ctx.Err())
	case errors.As(err, &exited):
		text := strings.TrimSpace(complaint.String())
		return &exitError{exited.ExitCode(), text[:min(len(text), mostComplaint)]}
	}
	return err
}

// find looks for a program in the absolute ones of dirs, and where such programs
// are when PATH has no place for administrators.
func find(program string, dirs []string) (string, error) {
	for _, dir := range append(dirs, "/usr/sbin", "/sbin", "/usr/local/sbin") {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %s: %w", program, exec.ErrNotFound)
}
