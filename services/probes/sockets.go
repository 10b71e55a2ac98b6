package probes

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/polylet/polylet/internal/health"
)

// socketsQuiet is how long no attempt must have lacked a socket for that to be over:
// beside those that lack one others find one that was just given back.
const socketsQuiet = time.Minute

// sockets tells health whether there are sockets for the probes.
type sockets struct {
	health health.Reporter

	mu    sync.Mutex
	cause error // nil while there are
	over  *time.Timer
	last  time.Time
}

// lack takes note of an attempt for which there was no socket.
func (s *sockets) lack(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	if s.cause != nil && errors.Is(cause, s.cause) {
		return
	}
	if s.cause == nil {
		s.over = time.AfterFunc(socketsQuiet, s.look)
	}
	s.cause = cause
	s.health.Set("sockets", false, fmt.Sprintf("http, tcp and grpc probes find no socket (%v), and say nothing meanwhile: what their containers were found to be stays; %s", cause, advice(cause)))
}

// look ends it when the last lack is long ago.
func (s *sockets) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := socketsQuiet - time.Since(s.last); left > 0 {
		s.over.Reset(left)
		return
	}
	s.cause = nil
	s.health.Set("sockets", true, "")
}

// advice is what an operator can do.
func advice(cause error) string {
	switch {
	case errors.Is(cause, syscall.EMFILE):
		return "raise the probes process's limit of files (LimitNOFILE=), and see in /proc/<pid>/fd what it holds"
	case errors.Is(cause, syscall.ENFILE):
		return "find who holds the node's files (/proc/sys/fs/file-nr), or raise fs.file-max"
	case errors.Is(cause, syscall.EADDRNOTAVAIL):
		return "find who holds the node's local ports (ss -s), or widen net.ipv4.ip_local_port_range"
	}
	return "give the node memory: free -m, and net.ipv4.tcp_mem for what its sockets may have"
}
