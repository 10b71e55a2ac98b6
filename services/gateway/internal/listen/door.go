package listen

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// door bounds how many connections are open. Clients that nobody has authorised
// yet, strangers, have few places, and the oldest makes room for the next: a
// flood costs a bounded amount, throws out itself first, and whoever shows
// credentials in time gets in and stays.
type door struct {
	net.Listener
	most, mostStrangers int
	dropped             func()

	mu        sync.Mutex
	open      int
	strangers list.List // of *visitor, oldest first
}

// visitor is a connection that came through a door.
type visitor struct {
	net.Conn
	door *door
	// place is nil for those who are known; under the door's lock.
	place *list.Element
	left  bool
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if v := d.enter(conn); v != nil {
			return v, nil
		}
		_ = conn.Close()
		d.dropped()
	}
}

// enter returns nil when all places are taken by those who are known.
func (d *door) enter(conn net.Conn) *visitor {
	d.mu.Lock()
	var out *visitor
	if d.strangers.Len() >= d.mostStrangers || d.open >= d.most {
		oldest := d.strangers.Front()
		if oldest == nil {
			d.mu.Unlock()
			return nil
		}
		out, _ = oldest.Value.(*visitor)
		d.forget(out)
	}
	v := &visitor{Conn: conn, door: d}
	v.place = d.strangers.PushBack(v)
	d.open++
	d.mu.Unlock()
	if out != nil {
		_ = out.Conn.Close()
		d.dropped()
	}
	return v
}

// forget gives a visitor's place free. The caller holds the lock.
func (d *door) forget(v *visitor) {
	if v.left {
		return
	}
	v.left = true
	d.open--
	if v.place != nil {
		d.strangers.Remove(v.place)
		v.place = nil
	}
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.door.mu.Lock()
	v.door.forget(v)
	v.door.mu.Unlock()
	return v.Conn.Close()
}

// CloseWrite is for net/http, which half-closes where it can.
func (v *visitor) CloseWrite() error {
	if half, ok := v.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (v *visitor) trust() {
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	if v.place != nil {
		v.door.strangers.Remove(v.place)
		v.place = nil
	}
}

type visitorKey struct{}

// withVisitor is for http.Server.ConnContext.
func withVisitor(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if v, ok := c.(*visitor); ok {
		return context.WithValue(ctx, visitorKey{}, v)
	}
	return ctx
}

// Trust says that the connection of a request's context belongs to somebody who
// was authorised, so that no stranger takes its place.
func Trust(ctx context.Context) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		v.trust()
	}
}
