package daemon

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The process is another: a signal that nobody takes would end this one.
func TestASignalStopsInOrder(t *testing.T) {
	if os.Getenv("POLYLET_TEST_SIGNALLED") != "" {
		os.Exit(Main(func(ctx context.Context) error {
			_, _ = os.Stdout.WriteString("up\n")
			<-ctx.Done()
			return context.Cause(ctx)
		}))
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			if signal.Ignored(sig) {
				t.Skip("this test runs under nohup")
			}
			out, err := signalled(t, sig)
			if err == nil || !strings.Contains(out, "received "+sig.String()) {
				t.Errorf("it said %q and ended with %v", out, err)
			}
		})
	}
}

// Under nohup a terminal that goes away is nothing to stop for.
func TestAHangupThatIsIgnoredStopsNothing(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "nohup", os.Args[0], "-test.run=^TestASignalStopsInOrder$")
	out, stop := startWaiting(t, cmd)
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	select {
	case <-ended:
		t.Errorf("it ended: %s", out)
	case <-time.After(500 * time.Millisecond):
	}
	stop()
	<-ended
}

// signalled is what a process that was sent the signal said, and how it ended.
func signalled(t *testing.T, sig syscall.Signal) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestASignalStopsInOrder$")
	out, _ := startWaiting(t, cmd)
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	return out.String(), err
}

// startWaiting starts a process and returns when it waits for signals.
func startWaiting(t *testing.T, cmd *exec.Cmd) (said *strings.Builder, stop func()) {
	t.Helper()
	said = &strings.Builder{}
	cmd.Env, cmd.Stderr = append(os.Environ(), "POLYLET_TEST_SIGNALLED=1"), said
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 3)); err != nil {
		t.Fatalf("it never came up: %v", err)
	}
	return said, func() { _ = cmd.Process.Kill() }
}
