package uds

import (
	"context"
	"fmt"
	"net"

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
}

type authInfo struct {
	credentials.CommonAuthInfo
	peer Peer
}

// AuthType implements credentials.AuthInfo.
func (authInfo) AuthType() string { return "unix-peercred" }

// Credentials are gRPC transport credentials that read SO_PEERCRED of Unix
// sockets. The bytes on the wire are unchanged, so any plaintext gRPC client
// can talk to a server that uses them. Other sockets are refused.
func Credentials() credentials.TransportCredentials { return transport{} }

type transport struct{}

func (transport) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return handshake(conn)
}

func (transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return handshake(conn)
}

func (transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix-peercred"}
}

func (transport) Clone() credentials.TransportCredentials { return transport{} }

func (transport) OverrideServerName(string) error { return nil }

func handshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, err := readPeer(conn)
	if err != nil {
		return nil, nil, err
	}
	return conn, authInfo{
		// The kernel carries the bytes: nobody else can read or change them.
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		peer:           p,
	}, nil
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
