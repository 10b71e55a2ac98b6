package handler

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/internal/tlsbound"
	"github.com/polylet/polylet/services/probes/internal/probe"
)

// lacks are errors of making a socket that this process or its node is the cause of.
var lacks = []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EADDRNOTAVAIL}

// unconnected is the answer to an attempt whose connection failed with err: one for
// which this node had no socket says nothing about the container.
func (h *Handlers) unconnected(err error, message string) probe.Answer {
	if errors.Is(err, tlsbound.ErrBusy) {
		return errored("%s", message)
	}
	cause := lack(err)
	if cause == nil {
		return failed(message)
	}
	if h.cfg.OnLack != nil {
		h.cfg.OnLack(cause)
	}
	return errored("the node has no socket for the probe, which says nothing about the container: %s", message)
}

// lack is what of lacks a connection failed for; nil when it is the other side's doing,
// or happened later.
func lack(err error) error {
	var dial *net.OpError
	if !errors.As(err, &dial) || dial.Op != "dial" {
		return nil
	}
	for _, cause := range lacks {
		if errors.Is(dial.Err, cause) && (cause != unix.EADDRNOTAVAIL || reachable(dial.Addr)) {
			return cause
		}
	}
	return nil
}

// reachable says whether the node has an address from which to speak to this one: who
// writes the probe chooses it, and without one it is no port that is missing. Nothing
// is sent.
func reachable(addr net.Addr) bool {
	if addr == nil {
		return false
	}
	conn, err := net.Dial("udp", addr.String())
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
