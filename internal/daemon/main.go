package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// Exit codes of all processes.
const (
	// ExitOK is a clean stop.
	ExitOK = 0
	// ExitFailed is any failure; the last line on standard error names it.
	ExitFailed = 1
	// ExitInterrupted is a second signal during the stop.
	ExitInterrupted = 130
)

// ExitError ends the process with a code of its own and without a word: what
// ended has spoken for itself.
type ExitError struct{ Code int }

// Error names the code.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Main runs f until SIGTERM, SIGINT or SIGHUP (which nohup has it ignore) and returns the
// exit code. The first signal ends f's context; a second one ends the process at once.
// The last line on standard error is f's error.
func Main(f func(ctx context.Context) error) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	go func() {
		first := <-signals
		loggerFrom(ctx).Info("Stopping", "signal", first.String())
		cancel(fmt.Errorf("received %s", first))
		<-signals
		klog.Flush()
		os.Exit(ExitInterrupted)
	}()
	err := f(ctx)
	klog.Flush()
	var exit ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	if err == nil || (ctx.Err() != nil && errors.Is(err, context.Canceled)) {
		return ExitOK
	}
	fmt.Fprintf(os.Stderr, "polylet: %v\n", err)
	return ExitFailed
}
