package handler

import (
	"context"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// tcpSocket succeeds when a connection can be made.
func (h *Handlers) tcpSocket(ctx context.Context, t probe.Target, a probe.TCPSocket) probe.Answer {
	addr, wrong := address(a.Host, t.PodIP, a.Port, a.PortName)
	if wrong != "" {
		return errored("%s", wrong)
	}
	conn, err := dial(t.Timeout)(ctx, "tcp", addr)
	if err != nil {
		return h.unconnected(err, err.Error())
	}
	// What closing says does not matter: the connection was made.
	_ = conn.Close()
	return probe.Answer{Verdict: probe.Passed}
}
