package uds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Peer is the process at the other end, as the kernel recorded it at connect.
type Peer struct {
	// UID and GID are its effective ids.
	UID, GID uint32
	// PID is its process id as seen from this PID namespace; 0 when it is not in it.
	PID int32
	// Pod is the line of the process's /proc/PID/cgroup that lies in a pod; ""
	// when it runs in none, or cannot be looked at (another PID namespace, or hidden
	// where Credentials takes that). Only servers look.
	Pod string
}

type authInfo struct {
	credentials.CommonAuthInfo
	peer Peer
}

// AuthType implements credentials.AuthInfo.
func (authInfo) AuthType() string { return "unix-peercred" }

// connectionsOfAUser is how many connections one user may hold to a server:
// a service needs one for each that it calls, a person one for each command.
// One container may hold an eighth of what all pods together may.
const connectionsOfAUser = 64

// Credentials are a server's gRPC transport credentials: they read SO_PEERCRED
// of Unix sockets and bound how many connections one user holds. The bytes on
// the wire are unchanged, so any plaintext gRPC client can talk to a server that
// uses them. Other sockets are refused, and, unless hidden says so, peers that
// /proc hides: nobody knows whether they run in a pod.
func Credentials(hidden bool) credentials.TransportCredentials {
	return transport{open: &connections{of: map[holder]int{}, most: connectionsOfAUser}, hidden: hidden}
}

// ServedBy are a client's: they refuse a server that neither root, nor this
// process's own user, nor one for whom may says so has opened. (A socket that is
// passed on counts as whoever opened it: root, with systemd and polylet run.) A
// nil may allows no further user.
func ServedBy(may func(uid uint32) bool) credentials.TransportCredentials { return transport{may: may} }

type transport struct {
	may    func(uid uint32) bool
	open   *connections
	hidden bool
}

func (t transport) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, err := readPeer(conn)
	if err != nil {
		return nil, nil, err
	}
	if p.UID != 0 && p.UID != uint32(os.Geteuid()) && (t.may == nil || !t.may(p.UID)) {
		return nil, nil, fmt.Errorf("%s is served by uid %d, which is none of polylet's: see who has made this socket, and remove it", conn.RemoteAddr(), p.UID)
	}
	return conn, authOf(p), nil
}

func (t transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, err := readPeer(conn)
	if err != nil {
		return nil, nil, err
	}
	if p.Pod, err = podCgroup(conn, p.PID); err != nil && (!t.hidden || !errors.Is(err, errPeerHidden)) {
		return nil, nil, err
	}
	if t.open != nil {
		if conn, err = t.open.add(conn, p); err != nil {
			return nil, nil, err
		}
	}
	return conn, authOf(p), nil
}

func (transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peercred"}
}

func (t transport) Clone() credentials.TransportCredentials { return t }

func (transport) OverrideServerName(string) error { return nil }

// holder is who holds connections. Pods count for themselves, all as one and each
// container by its cgroup: root in one must not use up root's, and they take any
// number that they like.
type holder struct {
	uid    uint32
	pod    bool
	cgroup string
}

// connections counts those that are open.
type connections struct {
	mu   sync.Mutex
	of   map[holder]int
	most int
}

// add counts a connection until it is closed.
func (c *connections) add(conn net.Conn, p Peer) (net.Conn, error) {
	holders := map[holder]int{{uid: p.UID}: c.most}
	if p.Pod != "" {
		holders = map[holder]int{{pod: true}: c.most, {pod: true, cgroup: p.Pod}: max(c.most/8, 1)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for who, most := range holders {
		if c.of[who] >= most {
			return nil, fmt.Errorf("uid %d holds %d connections to this socket, no more are let in", p.UID, most)
		}
	}
	for who := range holders {
		c.of[who]++
	}
	return &counted{Conn: conn, done: sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for who := range holders {
			if c.of[who]--; c.of[who] == 0 {
				delete(c.of, who)
			}
		}
	})}, nil
}

// counted is a connection that is counted.
type counted struct {
	net.Conn
	done func()
}

func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}

func authOf(p Peer) credentials.AuthInfo {
	return authInfo{
		// The kernel carries the bytes: nobody else can read or change them.
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		peer:           p,
	}
}

func readPeer(conn net.Conn) (Peer, error) {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("read peer credentials: %T is not a Unix socket", conn)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", err)
	}
	if credErr != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", credErr)
	}
	return Peer{UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}, nil
}

// PeerFrom returns the caller of the RPC whose context this is; false when the
// server does not use Credentials (tests over bufconn).
func PeerFrom(ctx context.Context) (Peer, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Peer{}, false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info.peer, ok
}
