package listen

import "net"

// loopback is a port at a loopback address. It serves peers with such an
// address only: packets for 127.0.0.1 may come from outside where a network
// plugin has set route_localnet and no firewall drops them (CVE-2020-8558).
type loopback struct {
	net.Listener
	dropped func()
}

// onlyLocal is sock, or for a loopback address sock without clients elsewhere.
func onlyLocal(sock net.Listener, dropped func()) net.Listener {
	if !isLoopback(sock.Addr()) {
		return sock
	}
	return loopback{sock, dropped}
}

// Accept implements net.Listener.
func (l loopback) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || isLoopback(conn.RemoteAddr()) {
			return conn, err
		}
		_ = conn.Close()
		l.dropped()
	}
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
