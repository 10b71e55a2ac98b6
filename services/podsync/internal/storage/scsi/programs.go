package scsi

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const (
	// programWithin is how long a program may take: iscsiadm itself gives a target up after
	// two minutes.
	programWithin = 150 * time.Second
	// killWait is how long a killed program may hold what it says.
	killWait = 2 * time.Second
)

// failure is a program's that has ended with a code.
type failure struct {
	program string
	code    int
	said    string
}

func (f *failure) Error() string {
	return fmt.Sprintf("%s: exit status %d, output: %s", f.program, f.code, strings.TrimSpace(f.said))
}

// The codes of iscsiadm that mean that there is nothing to do.
const (
	codeNoSession = 2
	codeExists    = 15
	codeNoObject  = 21
)

// unless is err, but nil when a program has ended with one of the codes.
func unless(err error, codes ...int) error {
	if f := (*failure)(nil); errors.As(err, &f) && slices.Contains(codes, f.code) {
		return nil
	}
	return err
}

// mostSaid is how much is kept of what a program says: iscsiadm says all that a target has
// answered it.
const mostSaid = 64 << 10

// head keeps the beginning of what is written to it.
type head struct{ strings.Builder }

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	_, _ = h.Builder.Write(p[:min(len(p), mostSaid-h.Len())])
	return len(p), nil
}

// run runs a program of the host's, by itself and in no shell. Its arguments are in no
// error: there are secrets among them.
func run(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
	out := &head{}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	ended := (*exec.ExitError)(nil)
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return out.String(), nil
	case ctx.Err() != nil:
		return out.String(), fmt.Errorf("%s did not end in its time: %w", program, context.Cause(ctx))
	case errors.Is(err, exec.ErrNotFound):
		return "", podstate.VolumeProgramMissing.Wrap(fmt.Errorf("%w: this node has no %s: install %s, and have its service run", rpcerr.ErrUnavailable, program, packageOf(program)))
	case errors.As(err, &ended):
		return out.String(), &failure{program, ended.ExitCode(), out.String()}
	}
	return out.String(), fmt.Errorf("run %s: %w", program, err)
}

// packageOf is what a program comes with.
func packageOf(program string) string {
	if program == "multipath" {
		return "multipath-tools (Debian, SUSE) or device-mapper-multipath (Red Hat)"
	}
	return "open-iscsi (Debian, SUSE) or iscsi-initiator-utils (Red Hat)"
}

// iscsiadm runs that.
func (v *Volumes) iscsiadm(ctx context.Context, args ...string) (string, error) {
	return v.deps.Run(ctx, "iscsiadm", args...)
}
