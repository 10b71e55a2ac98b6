package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/daemon"
)

// execFlags are the flags of `polylet exec`, as kubectl's.
type execFlags struct {
	container  string
	stdin, tty bool
}

func newExecCommand() *cobra.Command {
	var flags execFlags
	cmd := inspectCommand("exec [NAMESPACE/]POD -- COMMAND [ARG]...", "Run a command in a container", cobra.MinimumNArgs(2),
		func(cmd *cobra.Command, dir string, args []string) error {
			p, err := dialPodsync(dir)
			if err != nil {
				return err
			}
			defer p.conn.Close()
			pod, err := p.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			name, err := chooseContainer(pod, flags.container, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return p.exec(cmd, pod, name, args[1:], flags)
		})
	cmd.Long = "Run a command in a running container, also without an apiserver. Only root and the gateway's user may.\nThe exit code is the command's. No shell is involved unless it is the command."
	cmd.Example = "  polylet exec web -- cat /etc/hosts\n  polylet exec -it kube-system/dns -c app -- sh"
	cmd.ValidArgsFunction = completePods
	f := cmd.Flags()
	f.StringVarP(&flags.container, "container", "c", "", "Container, of any kind.")
	f.BoolVarP(&flags.stdin, "stdin", "i", false, "Pass standard input on.")
	f.BoolVarP(&flags.tty, "tty", "t", false, "Give the command a terminal.")
	_ = cmd.RegisterFlagCompletionFunc("container", completeContainers)
	return cmd
}

// exec runs a command and returns a daemon.ExitError for its exit code.
func (p *podsyncPeer) exec(cmd *cobra.Command, pod *v1.Pod, container string, command []string, flags execFlags) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), openWithin)
	defer cancel()
	resp, err := p.sync.OpenExec(ctx, &podsyncv1.OpenExecRequest{
		Pod: refOf(pod), Container: container, Command: command,
		Streams: &podsyncv1.StreamOptions{Stdin: flags.stdin, Stdout: true, Stderr: !flags.tty, Tty: flags.tty},
	})
	if err != nil {
		return explainCall("podsync", err)
	}
	to, err := url.Parse(resp.GetUrl())
	if err != nil {
		return fmt.Errorf("the runtime's streaming URL: %w", err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", to)
	if err != nil {
		return fmt.Errorf("connect to the runtime's streaming server: %w", err)
	}
	options := remotecommand.StreamOptions{Stdout: cmd.OutOrStdout(), Tty: flags.tty}
	if flags.stdin {
		options.Stdin = cmd.InOrStdin()
	}
	if !flags.tty {
		options.Stderr = cmd.ErrOrStderr()
	} else if stop := terminal(&options, cmd.InOrStdin()); stop != nil {
		defer stop()
	}
	return exitOf(executor.StreamWithContext(cmd.Context(), options))
}

// exitOf makes of how a session ended how the command ends.
func exitOf(err error) error {
	var code utilexec.CodeExitError
	if errors.As(err, &code) {
		return daemon.ExitError{Code: code.Code}
	}
	return err
}

// terminal puts the person's terminal into raw mode and follows its size; nil
// when in is none.
func terminal(options *remotecommand.StreamOptions, in io.Reader) (stop func()) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	state, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil
	}
	sizes := &sizeQueue{file: file, changed: make(chan os.Signal, 1)}
	signal.Notify(sizes.changed, syscall.SIGWINCH)
	sizes.changed <- syscall.SIGWINCH
	options.TerminalSizeQueue = sizes
	return func() {
		signal.Stop(sizes.changed)
		close(sizes.changed)
		_ = term.Restore(int(file.Fd()), state)
	}
}

// sizeQueue tells the sizes of a terminal; it implements remotecommand.TerminalSizeQueue.
type sizeQueue struct {
	file    *os.File
	changed chan os.Signal
}

// Next implements remotecommand.TerminalSizeQueue.
func (q *sizeQueue) Next() *remotecommand.TerminalSize {
	if _, ok := <-q.changed; !ok {
		return nil
	}
	width, height, err := term.GetSize(int(q.file.Fd()))
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)} //nolint:gosec // terminals are small
}
