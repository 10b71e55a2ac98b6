// Package nodeshutdown is how nodestatus, which has no root, follows a shutdown of the
// machine and delays it: whoever has root (polylet run, or polylet handout under
// systemd) holds logind's lock, and tells over a Unix socket what logind says; it lets
// the lock go when nodestatus has said that the pods have ended.
//
// It owns that conversation, the lock and the state file. It must never end a pod.
package nodeshutdown

import (
	"path/filepath"
	"time"
)

const (
	// SocketName is that of the socket in the directory of sockets.
	SocketName = "shutdown.sock"
	// StateFile is the file in the root directory, with the kubelet's name and form.
	StateFile = "graceful_node_shutdown_state"
	// DropIn raises how long logind lets a shutdown be delayed. It is gone with the
	// machine's next start, and read after the one that a kubelet leaves.
	DropIn = "/run/systemd/logind.conf.d/99-polylet.conf"
)

// Socket is the path of the socket.
func Socket(dir string) string { return filepath.Join(dir, SocketName) }

// State is what is told, a line of JSON each.
type State struct {
	// Since is when the machine began to prepare for its shutdown; zero: it does not.
	Since time.Time `json:"since,omitzero"`
	// Elapsed is how long ago that was when this was told, whatever the machine's clock was
	// set to meanwhile; zero when that is not known.
	Elapsed time.Duration `json:"elapsed,omitempty"`
	// Delay is how long logind waits at most; zero when that is not known.
	Delay time.Duration `json:"delay,omitempty"`
	// Problem is why a shutdown is not followed or not long enough delayed; empty when
	// nothing is wrong.
	Problem string `json:"problem,omitempty"`
}

// answer is what nodestatus says, a line of JSON each.
type answer struct {
	// Done is the Since of the shutdown for which the pods have ended.
	Done time.Time `json:"done"`
}

// Times is what the state file has.
type Times struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}
