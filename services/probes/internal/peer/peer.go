// Package peer is how this process speaks with podsync: the one stream over
// which targets come down and results go up, and the commands of exec probes.
// It owns the connection's state only; it must never judge a probe.
package peer

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/internal/watch"
	"github.com/polylet/polylet/services/probes/internal/probe"
)

// Targets takes what podsync wants probed.
type Targets interface {
	// Replace makes targets the whole set.
	Replace(targets []probe.Target)
	// Apply changes part of it.
	Apply(changed []probe.Target, removed []probe.Key)
}

// Outbox holds what podsync must learn.
type Outbox interface {
	// Reset begins a connection with everything that is held.
	Reset() ([]probe.Result, []probe.Event)
	// Take waits for what is due.
	Take(ctx context.Context) ([]probe.Result, []probe.Event, error)
}

// Deps is what a Client is given.
type Deps struct {
	// Conn is the connection to podsync's socket.
	Conn grpc.ClientConnInterface
	// Epoch of this process.
	Epoch uint64
	// Health gets the readiness of "podsync".
	Health  health.Reporter
	Targets Targets
	Outbox  Outbox
}

// Client keeps the stream open. See New.
type Client struct {
	deps   Deps
	client podsyncv1.PodSyncServiceClient
	sender sync.WaitGroup
}

// New returns a Client. It opens nothing.
func New(deps Deps) *Client {
	return &Client{deps: deps, client: podsyncv1.NewPodSyncServiceClient(deps.Conn)}
}

// Run keeps the stream open until ctx is done. While podsync is away the
// targets known last go on being probed.
func (c *Client) Run(ctx context.Context) error {
	defer c.sender.Wait()
	return watch.Follow(ctx, watch.Follower[*podsyncv1.SyncProbesResponse]{
		Name:    service.Podsync,
		Health:  c.deps.Health,
		Connect: c.connect,
		Header: func(r *podsyncv1.SyncProbesResponse) watch.Header {
			return watch.Header{Epoch: r.GetEpoch(), Revision: r.GetRevision(), Snapshot: r.GetSnapshot()}
		},
		Handle: c.handle,
	})
}

// firstSend bounds how long podsync may take to let the stream open.
const firstSend = 5 * time.Second

func (c *Client) connect(ctx context.Context) (func() (*podsyncv1.SyncProbesResponse, error), error) {
	ctx, cancel := context.WithCancel(ctx)
	opening := time.AfterFunc(firstSend, cancel)
	stream, err := c.client.SyncProbes(ctx)
	if err != nil {
		opening.Stop()
		cancel()
		return nil, err
	}
	results, events := c.deps.Outbox.Reset()
	if err := sendAll(stream, c.requests(results, events)); err != nil {
		// The stream's own error, which says more, comes from receiving.
		_, err = stream.Recv()
		opening.Stop()
		cancel()
		return nil, err
	}
	opening.Stop()
	c.sender.Go(func() {
		defer cancel()
		c.send(ctx, stream)
	})
	return stream.Recv, nil
}

// send passes on what becomes due until the stream ends, which receiving reports.
func (c *Client) send(ctx context.Context, stream podsyncv1.PodSyncService_SyncProbesClient) {
	for {
		results, events, err := c.deps.Outbox.Take(ctx)
		if err != nil {
			return
		}
		if sendAll(stream, c.requests(results, events)) != nil {
			return
		}
	}
}

// perRequest bounds what one message carries: each result and each event may
// have an output of 10 KiB, and podsync takes no message above 4 MiB.
const perRequest = 128

// requests are at least one message: the first tells who is there.
func (c *Client) requests(results []probe.Result, events []probe.Event) []*podsyncv1.SyncProbesRequest {
	var out []*podsyncv1.SyncProbesRequest
	for len(out) == 0 || len(results)+len(events) > 0 {
		req := &podsyncv1.SyncProbesRequest{Epoch: c.deps.Epoch}
		for _, r := range results[:min(len(results), perRequest)] {
			req.Results = append(req.Results, fromResult(r))
		}
		for _, e := range events[:min(len(events), perRequest)] {
			req.Events = append(req.Events, fromEvent(e))
		}
		results, events = results[len(req.GetResults()):], events[len(req.GetEvents()):]
		out = append(out, req)
	}
	return out
}

func sendAll(stream podsyncv1.PodSyncService_SyncProbesClient, requests []*podsyncv1.SyncProbesRequest) error {
	for _, req := range requests {
		if err := stream.Send(req); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) handle(_ context.Context, r *podsyncv1.SyncProbesResponse) error {
	targets := make([]probe.Target, 0, len(r.GetTargets()))
	for _, t := range r.GetTargets() {
		targets = append(targets, ToTarget(t))
	}
	if r.GetSnapshot() {
		c.deps.Targets.Replace(targets)
		return nil
	}
	removed := make([]probe.Key, 0, len(r.GetRemoved()))
	for _, k := range r.GetRemoved() {
		removed = append(removed, toKey(k))
	}
	c.deps.Targets.Apply(targets, removed)
	return nil
}
