package peer

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/gateway/internal/streaming"
)

// holdFor is how long a podsync that is away is waited for once a client has
// left, so that its command is ended: each time anew.
const holdFor = 10 * time.Minute

// OpenExec implements streaming.Runtime. A podsync that does not know HoldExec
// opens the session without it.
func (p *Podsync) OpenExec(ctx context.Context, t streaming.Target, command []string, s streaming.Streams) (streaming.Opened, error) {
	open := &podsyncv1.OpenExecRequest{Pod: ref(t), Container: t.Container, Command: command, Streams: streams(s)}
	h, url, err := p.holdExec(ctx, open)
	if errors.Is(err, rpcerr.ErrUnimplemented) {
		res, err := p.client.OpenExec(ctx, open)
		return streaming.Opened{URL: res.GetUrl()}, err
	}
	if err != nil {
		return streaming.Opened{}, err
	}
	return streaming.Opened{URL: url, Over: h.over}, nil
}

// noteWithin is how long podsync may take to look at a command whose client has
// left, before the connection to the runtime is closed all the same.
const noteWithin = 2 * time.Second

// hold is the stream that tells podsync of a session, opened again whenever
// podsync was away. See HoldExec in podsync.proto.
type hold struct {
	client podsyncv1.PodSyncServiceClient
	named  named
	ctx    context.Context // the stream's; it outlives the request, and holds nothing of it
	cancel context.CancelFunc

	mu     sync.Mutex
	stream podsyncv1.PodSyncService_HoldExecClient // nil while podsync is away
	noted  chan struct{}                           // closed when podsync has answered the last word on stream, or cannot
	last   *podsyncv1.ExecOver                     // nil while the session goes on
	giveUp *time.Timer                             // ends the wait for a podsync that is away; nil while none is running
}

func (p *Podsync) holdExec(ctx context.Context, open *podsyncv1.OpenExecRequest) (*hold, string, error) {
	h := &hold{client: p.client}
	h.ctx, h.cancel = context.WithCancel(logr.NewContext(context.Background(), klog.FromContext(ctx)))
	tied := context.AfterFunc(ctx, h.cancel)
	res, err := h.begin(&podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Open{Open: open}})
	if !tied() {
		err = rpcerr.FromStatus(context.Cause(ctx))
	}
	if err != nil {
		h.cancel()
		return nil, "", err
	}
	h.named = p.commands.name(res, open.GetCommand())
	go func() {
		defer p.commands.forget(h.named)
		h.keep()
	}()
	return h, res.GetUrl(), nil
}

// begin opens the stream and returns podsync's answer; io.EOF says that there is
// nothing to hold.
func (h *hold) begin(first *podsyncv1.HoldExecRequest, opts ...grpc.CallOption) (*podsyncv1.HoldExecResponse, error) {
	stream, err := h.client.HoldExec(h.ctx, opts...)
	if err != nil {
		return nil, err
	}
	// A stream that cannot be written to tells why when it is read.
	if err := stream.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	res, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stream, h.noted = stream, make(chan struct{})
	h.stopTimerLocked()
	h.sendLast()
	return res, nil
}

// over is streaming.Opened's Over.
func (h *hold) over(clientLeft bool) {
	noted := h.said(clientLeft)
	if noted == nil || !clientLeft {
		return
	}
	timer := time.NewTimer(noteWithin)
	defer timer.Stop()
	select {
	case <-noted:
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// said says the last word. What it returns is closed when podsync has answered;
// nil: nobody listens.
func (h *hold) said(clientLeft bool) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = &podsyncv1.ExecOver{ClientLeft: clientLeft}
	h.boundWaitLocked()
	h.sendLast()
	if h.stream != nil {
		return h.noted
	}
	if !clientLeft {
		h.cancel() // nobody knows of it, and nothing is to be done
	}
	return nil
}

// boundWaitLocked has a podsync that is away given up on after a while, when a
// client has left. What is over already waits for nothing.
func (h *hold) boundWaitLocked() {
	if h.stream == nil && h.last.GetClientLeft() && h.giveUp == nil && h.ctx.Err() == nil {
		h.giveUp = time.AfterFunc(holdFor, h.cancelAway)
	}
}

func (h *hold) stopTimerLocked() {
	if h.giveUp != nil {
		h.giveUp.Stop()
		h.giveUp = nil
	}
}

// end lets go of all that is held of the session.
func (h *hold) end() {
	h.cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopTimerLocked()
	h.named = named{}
}

// cancelAway gives up on a podsync that has not come back.
func (h *hold) cancelAway() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stream == nil {
		h.cancel()
	}
}

// sendLast says the last word if there is one and podsync listens; under mu.
func (h *hold) sendLast() {
	if h.stream == nil || h.last == nil {
		return
	}
	// Whether it has arrived shows when the stream ends.
	_ = h.stream.Send(&podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Over{Over: h.last}})
	_ = h.stream.CloseSend()
}

// keep holds the stream until podsync ends it or nothing is to be said any more.
func (h *hold) keep() {
	defer h.end()
	pause := backoff.New(backoff.Config{Max: time.Second, Jitter: 0.2, ResetAfter: time.Minute})
	err, told := h.wait(), true
	for h.again(err) {
		select {
		case <-time.After(pause.Next()):
		case <-h.ctx.Done():
			return
		}
		_, err = h.begin(&podsyncv1.HoldExecRequest{Step: &podsyncv1.HoldExecRequest_Resume{Resume: h.named.resume()}}, grpc.WaitForReady(true))
		if told = err == nil; told {
			err = h.wait()
		}
	}
	if told && errors.Is(err, context.Canceled) {
		return // this process ends, and with it the stream, by which podsync hears of it
	}
	if !errors.Is(err, io.EOF) && h.ctx.Err() == nil && h.pending() {
		klog.FromContext(h.ctx).Error(err, "A command whose client has left may be left in its container",
			"containerID", h.named.containerID, "program", h.named.program)
	}
}

// wait returns when the stream has ended, io.EOF if podsync is done with it.
func (h *hold) wait() error {
	_, err := h.stream.Recv()
	close(h.noted)
	for err == nil {
		_, err = h.stream.Recv()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stream = nil
	h.boundWaitLocked()
	return err
}

// again says whether podsync is to be told once more: it is away, and the
// command is not known to have ended.
func (h *hold) again(err error) bool {
	away := errors.Is(err, rpcerr.ErrUnavailable) || errors.Is(err, rpcerr.ErrTimeout)
	return away && h.pending()
}

// pending says that the command is not known to have ended.
func (h *hold) pending() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last == nil || h.last.GetClientLeft()
}
