package dialctx

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leftFor is how long a connection that was closed may go on in the kernel.
const leftFor = time.Second

// Brief returns a dial whose connections are gone soon after they were closed. A server
// that does not close its side would leave each here for another minute, one that does not
// read what was sent for longer, and who has many probes made of such a server takes the
// connections that the kernel keeps for all that nobody holds any more (tcp_max_orphans).
// SO_LINGER, which the kubelet sets, only has the close wait. Servers hear of the end as
// ever. Source: tcp(7), TCP_LINGER2 and TCP_USER_TIMEOUT.
func Brief(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return brief{conn}, nil
	}
}

type brief struct{ net.Conn }

// Close implements net.Conn.
func (b brief) Close() error {
	if below, ok := b.Conn.(syscall.Conn); ok {
		if raw, err := below.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // a connection that is closed already needs neither
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_LINGER2, int(leftFor/time.Second))
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(leftFor/time.Millisecond))
			})
		}
	}
	return b.Conn.Close()
}
