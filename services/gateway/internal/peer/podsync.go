package peer

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/services/gateway/internal/checkpoint"
	"github.com/polylet/polylet/services/gateway/internal/logs"
	"github.com/polylet/polylet/services/gateway/internal/streaming"
)

// Podsync serves logs and sessions. See NewPodsync.
type Podsync struct {
	client   podsyncv1.PodSyncServiceClient
	conn     grpc.ClientConnInterface
	commands commands
	// outputs has one for each output of a command of /run that is held.
	outputs chan struct{}
	waiting chan struct{} // places of outputs that wait for one of those
}

var _ streaming.Runtime = (*Podsync)(nil)

// NewPodsync returns a client over a connection to podsync's socket.
func NewPodsync(conn grpc.ClientConnInterface) *Podsync {
	return &Podsync{client: podsyncv1.NewPodSyncServiceClient(conn), conn: conn, outputs: make(chan struct{}, mostOutputs), waiting: make(chan struct{}, mostWaiting)}
}

// Logs implements logs.Open.
func (p *Podsync) Logs(ctx context.Context, namespace, pod, container string, options *v1.PodLogOptions) (func() (io.WriterTo, error), error) {
	raw, err := options.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding the log options: %w", err)
	}
	stream, err := p.client.ReadLogs(ctx, &podsyncv1.ReadLogsRequest{
		Pod: &podsyncv1.PodRef{Namespace: namespace, Name: pod}, Container: container, Options: raw,
	}, grpc.ForceCodecV2(newPieceCodec()))
	if err != nil {
		return nil, err
	}
	piece := new(logPiece)
	return func() (io.WriterTo, error) {
		err := stream.RecvMsg(piece)
		return piece, err
	}, nil
}

var _ logs.Open = (*Podsync)(nil).Logs

// OpenAttach implements streaming.Runtime.
func (p *Podsync) OpenAttach(ctx context.Context, t streaming.Target, s streaming.Streams) (string, error) {
	res, err := p.client.OpenAttach(ctx, &podsyncv1.OpenAttachRequest{Pod: ref(t), Container: t.Container, Streams: streams(s)})
	return res.GetUrl(), err
}

// OpenPortForward implements streaming.Runtime.
func (p *Podsync) OpenPortForward(ctx context.Context, t streaming.Target, ports []int32) (string, error) {
	res, err := p.client.OpenPortForward(ctx, &podsyncv1.OpenPortForwardRequest{Pod: ref(t), Ports: ports})
	return res.GetUrl(), err
}

// Checkpoint implements checkpoint.Take.
func (p *Podsync) Checkpoint(ctx context.Context, namespace, pod, container string, timeout time.Duration) (string, error) {
	req := &podsyncv1.CheckpointContainerRequest{Pod: &podsyncv1.PodRef{Namespace: namespace, Name: pod}, Container: container}
	if timeout > 0 {
		req.Timeout = durationpb.New(timeout)
	}
	res, err := p.client.CheckpointContainer(ctx, req)
	return res.GetPath(), err
}

var _ checkpoint.Take = (*Podsync)(nil).Checkpoint

func ref(t streaming.Target) *podsyncv1.PodRef {
	return &podsyncv1.PodRef{Namespace: t.Namespace, Name: t.Pod, Uid: t.UID}
}

func streams(s streaming.Streams) *podsyncv1.StreamOptions {
	return &podsyncv1.StreamOptions{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: s.TTY}
}
