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
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
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
	held, err := p.holdExec(cmd.Context(), &podsyncv1.OpenExecRequest{
		Pod: refOf(pod), Container: container, Command: command,
		Streams: &podsyncv1.StreamOptions{Stdin: flags.stdin, Stdout: true, Stderr: !flags.tty, Tty: flags.tty},
	})
	if err != nil {
		return explainCall(service.Podsync, err)
	}
	err = p.stream(cmd, held.url, flags)
	held.over(err)
	return exitOf(err)
}

// stream connects a session to this process's own streams until it is over.
func (p *podsyncPeer) stream(cmd *cobra.Command, at string, flags execFlags) error {
	to, err := url.Parse(at)
	if err != nil {
		return fmt.Errorf("the runtime's streaming URL: %w", err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", to)
	if err != nil {
		return fmt.Errorf("connect to the runtime's streaming server: %w", err)
	}
	options := remotecommand.StreamOptions{Stdout: asItIs(cmd.OutOrStdout()), Tty: flags.tty}
	if flags.stdin {
		options.Stdin = cmd.InOrStdin()
	}
	if !flags.tty {
		options.Stderr = cmd.ErrOrStderr()
	} else if stop := terminal(&options, cmd.InOrStdin()); stop != nil {
		defer stop()
	}
	return executor.StreamWithContext(cmd.Context(), options)
}

// heldExec is a session that podsync follows, so that its command does not stay
// when this process goes without it. It is not resumed with a podsync that was
// restarted meanwhile.
type heldExec struct {
	url    string
	stream podsyncv1.PodSyncService_HoldExecClient // nil with a podsync that does not follow
	cancel context.CancelFunc
}

func (p *podsyncPeer) holdExec(ctx context.Context, open *podsyncv1.OpenExecRequest) (*heldExec, error) {
	// The last word is said after a signal too.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	late := time.AfterFunc(openWithin, cancel)
	defer late.Stop()
	stream, err := p.sync.HoldExec(ctx)
	if err == nil {
		// A stream that cannot be written to tells why when it is read.
		_ = stream.Send(&podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Open{Open: open}})
		var res *podsyncv1.HoldExecResponse
		if res, err = stream.Recv(); err == nil {
			return &heldExec{url: res.GetUrl(), stream: stream, cancel: cancel}, nil
		}
	}
	if !errors.Is(err, rpcerr.ErrUnimplemented) {
		cancel()
		return nil, err
	}
	res, err := p.sync.OpenExec(ctx, open)
	return &heldExec{url: res.GetUrl(), cancel: cancel}, err
}

// over tells how the session ended: with the command's exit code, or without.
func (h *heldExec) over(err error) {
	defer h.cancel()
	if h.stream == nil {
		return
	}
	var code utilexec.CodeExitError
	left := err != nil && !errors.As(err, &code)
	late := time.AfterFunc(openWithin, h.cancel)
	defer late.Stop()
	// Whether podsync has heard it shows when it answers; one that is away ends
	// nothing.
	_ = h.stream.Send(&podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Over{Over: &podsyncv1.ExecOver{ClientLeft: left}}})
	_, _ = h.stream.Recv()
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
