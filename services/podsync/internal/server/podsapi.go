package server

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/uds"
)

// ServePods serves Kubernetes' Pods API on its own socket, which root may open,
// until ctx is done: its clients are agents in pods with a hostPath, as KEP-4188 has
// it.
func (s *Server) ServePods(ctx context.Context, socket string, h health.Reporter) error {
	listener := listenForPods(ctx, socket, h)
	if listener == nil {
		return nil
	}
	srv := rpc.NewServer(rpc.ServerConfig{Log: logr.FromContextOrDiscard(ctx), Stopping: ctx, Public: true})
	s.RegisterPods(srv)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	return srv.Serve(listener)
}

// listenForPods returns nil when ctx ends. Where the socket cannot be made, on a
// disk that became read-only above all, only those do without who ask there: that
// is said, and tried again.
func listenForPods(ctx context.Context, socket string, h health.Reporter) net.Listener {
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second})
	for {
		listener, err := uds.Listen(socket, "")
		if err == nil {
			h.Set("pods API", true, "")
			return listener
		}
		h.Set("pods API", false, fmt.Sprintf("nobody can ask it: %v; it is tried again", err))
		if retry.Wait(ctx) != nil {
			return nil
		}
	}
}
