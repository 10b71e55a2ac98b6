// Package handler makes one attempt of a probe: HTTP, TCP and gRPC by itself,
// exec through whoever can run a command. It owns the kubelet's texts for what
// comes out; it must never keep anything between attempts, count or retry.
package handler

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/polylet/polylet/internal/dialctx"
	"github.com/polylet/polylet/internal/slots"
	"github.com/polylet/polylet/services/probes/internal/probe"
)

// bodyLimit is how much of a body or an output is read.
const bodyLimit = 10 << 10

// What a server may have a probe hold besides, in bytes. Who answers one is a tenant's
// container.
const (
	// answerLimit bounds the header and the message of a gRPC answer, and what comes
	// without being asked for.
	answerLimit = 64 << 10
	// headerLimit bounds the header of an HTTP answer, which takes twenty times as much
	// when the headers in it are of a few letters each.
	headerLimit = 16 << 10
	// longHeaderLimit bounds that of one that is asked for again since it is longer.
	longHeaderLimit = 256 << 10
	// mostLong is how many attempts may have such answers at once, and mostLongOfOne how
	// many of them of one namespace.
	mostLong, mostLongOfOne = 6, 2
)

// Config is what handlers need to know.
type Config struct {
	// UserAgent of HTTP and gRPC probes, e.g. "kube-probe/1.36".
	UserAgent string
	// OnLack is told of each attempt for which this node had no socket: no file
	// descriptor, memory or port. It may be nil and must not block.
	OnLack func(cause error)
}

// Handlers makes attempts. Safe for concurrent use; see New.
type Handlers struct {
	cfg       Config
	commander Commander
	transport *http.Transport
	// roomy is for answers with long headers, while one of longHeaders is had.
	roomy       *http.Transport
	longHeaders *slots.Slots
}

// New returns Handlers that run commands through c.
func New(cfg Config, c Commander) *Handlers {
	return &Handlers{
		cfg: cfg, commander: c, transport: newTransport(headerLimit),
		roomy: newTransport(longHeaderLimit), longHeaders: slots.New(mostLong, mostLongOfOne),
	}
}

// Run makes one attempt and keeps to the target's timeout.
func (h *Handlers) Run(ctx context.Context, t probe.Target) probe.Answer {
	switch a := t.Handler.(type) {
	case probe.Exec:
		return h.exec(ctx, t, a)
	case probe.HTTPGet:
		return h.httpGet(ctx, t, a)
	case probe.TCPSocket:
		return h.tcpSocket(ctx, t, a)
	case probe.GRPC:
		return h.grpc(ctx, t, a)
	default:
		return errored("missing probe handler for %s/%s:%s; if its spec has one, the probes of the pod are too large together: shorten their headers", t.Namespace, t.Name, t.Key.Container)
	}
}

func errored(format string, args ...any) probe.Answer {
	return probe.Answer{Verdict: probe.Errored, Message: fmt.Sprintf(format, args...)}
}

func failed(message string) probe.Answer {
	return probe.Answer{Verdict: probe.Failed, Message: message}
}

// address joins host and port; the second value says what is wrong with them.
func address(host, podIP string, port int, portName string) (string, string) {
	if host == "" {
		host = podIP
	}
	switch {
	case port == 0 && portName != "":
		return "", fmt.Sprintf("port %s not found among the container's ports", portName)
	case port < 1 || port > 65535:
		return "", fmt.Sprintf("invalid port number: %d", port)
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), ""
}

// dial returns a dial whose connections are soon gone when they are closed: of a server
// that does not close its side they would pile up.
func dial(timeout time.Duration) dialctx.Dial {
	d := net.Dialer{Timeout: timeout, KeepAlive: -1}
	return dialctx.Brief(d.DialContext)
}
