package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/service"
)

// logFlags are the flags of `polylet logs`, as kubectl's.
type logFlags struct {
	container        string
	follow, previous bool
	timestamps       bool
	tail, limit      int64
	since            time.Duration
	sinceTime        string
}

func newLogsCommand() *cobra.Command {
	var flags logFlags
	cmd := inspectCommand("logs [NAMESPACE/]POD", "Show the log of a container", cobra.ExactArgs(1),
		func(cmd *cobra.Command, dir string, args []string) error {
			options, err := flags.options()
			if err != nil {
				return err
			}
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
			return p.logs(cmd, pod, name, options)
		})
	cmd.Long = "Show the log of a container, also without an apiserver. Without -c it is the container that the annotation\nkubectl.kubernetes.io/default-container names, or the first."
	cmd.Example = "  polylet logs kube-system/dns -f --tail=20\n  polylet logs web -c app --previous"
	cmd.ValidArgsFunction = completePods
	f := cmd.Flags()
	f.StringVarP(&flags.container, "container", "c", "", "Container, of any kind.")
	f.BoolVarP(&flags.follow, "follow", "f", false, "Go on until the container ends.")
	f.BoolVarP(&flags.previous, "previous", "p", false, "The log of the instance before this one.")
	f.BoolVar(&flags.timestamps, "timestamps", false, "A timestamp before each line.")
	f.Int64Var(&flags.tail, "tail", -1, "Only the last lines; -1 is all.")
	f.Int64Var(&flags.limit, "limit-bytes", 0, "At most so many bytes; 0 is no limit.")
	f.DurationVar(&flags.since, "since", 0, "Only what is younger, e.g. 5m.")
	f.StringVar(&flags.sinceTime, "since-time", "", "Only what came after, as RFC 3339.")
	cmd.MarkFlagsMutuallyExclusive("since", "since-time")
	_ = cmd.RegisterFlagCompletionFunc("container", completeContainers)
	return cmd
}

func (f logFlags) options() (*v1.PodLogOptions, error) {
	o := &v1.PodLogOptions{Follow: f.follow, Previous: f.previous, Timestamps: f.timestamps}
	if f.tail >= 0 {
		o.TailLines = &f.tail
	}
	if f.limit > 0 {
		o.LimitBytes = &f.limit
	}
	if f.since > 0 {
		seconds := int64((f.since + time.Second - 1) / time.Second)
		o.SinceSeconds = &seconds
	}
	if f.sinceTime != "" {
		at, err := time.Parse(time.RFC3339, f.sinceTime)
		if err != nil {
			return nil, fmt.Errorf("--since-time: %w: write it as 2006-01-02T15:04:05Z", err)
		}
		o.SinceTime = &metav1.Time{Time: at}
	}
	return o, nil
}

// logs copies a container's log to the command's output.
func (p *podsyncPeer) logs(cmd *cobra.Command, pod *v1.Pod, container string, options *v1.PodLogOptions) error {
	raw, err := options.Marshal()
	if err != nil {
		return fmt.Errorf("encode the log options: %w", err)
	}
	stream, err := p.sync.ReadLogs(cmd.Context(), &podsyncv1.ReadLogsRequest{Pod: refOf(pod), Container: container, Options: raw})
	if err != nil {
		return explainCall(service.Podsync, err)
	}
	for {
		piece, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF), cmd.Context().Err() != nil:
			return nil
		case err != nil:
			return explainCall(service.Podsync, err)
		}
		if _, err := asItIs(cmd.OutOrStdout()).Write(piece.GetData()); err != nil {
			return err
		}
	}
}
