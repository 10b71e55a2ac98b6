package listen

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/polylet/polylet/services/gateway/internal/inflight"
)

// door bounds how many connections are open. Clients that nobody has authorised
// yet, unknown clients, have few places, and whoever holds most of them makes room
// for the next with its oldest: a flood costs a bounded amount, throws out
// itself, and whoever shows credentials in time gets in and stays.
type door struct {
	net.Listener
	most, mostUnknown, mostKnownOfOne int
	dropped                           func()

	mu      sync.Mutex
	open    int
	came    uint64
	unknown int
	byToken int            // who are known without a certificate
	long    int            // of the unknown clients, who may send long headers
	byName  map[string]int // of those, by their certificates' names
	kept    int            // who have a good certificate and are not authorised yet
	keptOf  map[string]int // of those, by their certificates' names
	hosts   map[string]*host
}

// host is an address, as limit.HostOf counts them, that has connections.
type host struct {
	unknown     list.List // of *visitor, oldest first
	known, kept int
}

func newDoor(sock net.Listener, limits Limits, dropped func()) *door {
	return &door{
		Listener: sock, most: limits.Connections, mostUnknown: limits.Unknown, mostKnownOfOne: limits.KnownOfOne,
		dropped: dropped, hosts: map[string]*host{}, byName: map[string]int{}, keptOf: map[string]int{},
	}
}

// visitor is a connection that came through a door.
type visitor struct {
	net.Conn
	door *door
	host string
	// came is its number in the order of all.
	came uint64
	// place is nil for those who are known or kept; under the door's lock.
	place      *list.Element
	kept, left bool
	// byToken says that it is known without a certificate; under the door's lock.
	byToken bool
	// certified says that its client's certificate is good, name is in that; under the
	// door's lock.
	certified bool
	name      string
	// long says that it is one of few unknown clients who may send long headers; under the
	// door's lock.
	long bool
	// greeting says that hands are being shaken; sent is how many bytes came for that.
	greeting atomic.Bool
	sent     int // by who greets
}

// longestGreeting is how many bytes a client may send for a TLS handshake, most of them
// its certificates. crypto/tls takes a quarter of a megabyte of those and holds ten times
// as much, before anybody knows whose they are and as long as the connection lasts.
const longestGreeting = 32 << 10

var errLongGreeting = errors.New("the TLS handshake is too long: are there many certificates in the client's file?")

// Read implements net.Conn.
func (v *visitor) Read(p []byte) (int, error) {
	n, err := v.Conn.Read(p)
	if !v.greeting.Load() {
		return n, err
	}
	if v.sent += n; v.sent > longestGreeting {
		return 0, errLongGreeting
	}
	return n, err
}

// mostLong is how many unknown clients with a good certificate may send long headers at
// once, and mostOfOneName how many of them whose certificates have one name: of each a
// megabyte is read though it does not end, which is twenty here when the headers in it are
// of a few letters each, and who has a certificate of the cluster's may do nothing here
// for that.
const (
	mostLong      = 8
	mostOfOneName = 6
)

// mostKept is how many connections are kept of clients with a good certificate until they
// are authorised, and mostKeptOfName how many of one name: an apiserver's are no unknown
// clients then, which a flood from its own address throws out while it is asked who they
// are. Who has another certificate of the cluster's may do nothing here, and holds few.
const (
	mostKept       = 64
	mostKeptOfName = 16
)

// keepLocked takes v from the unknown clients if there is room; the lock is the door's.
func (v *visitor) keepLocked() {
	d := v.door
	if v.place == nil || d.kept >= mostKept || d.keptOf[v.name] >= mostKeptOfName {
		return
	}
	h := d.hosts[v.host]
	h.unknown.Remove(v.place)
	v.place, v.kept = nil, true
	d.unknown--
	d.kept++
	d.keptOf[v.name]++
	h.kept++
}

// keepNoMoreLocked makes room for another; the lock is the door's.
func (v *visitor) keepNoMoreLocked() {
	d := v.door
	v.kept = false
	d.kept--
	if d.keptOf[v.name]--; d.keptOf[v.name] == 0 {
		delete(d.keptOf, v.name)
	}
	d.hosts[v.host].kept--
}

// certify notes that v's client has a good certificate with a name, and says whether it
// may send long headers.
func (v *visitor) certify(name string) bool {
	d := v.door
	d.mu.Lock()
	defer d.mu.Unlock()
	v.certified, v.name = true, name
	v.keepLocked()
	if v.left || d.long >= mostLong || d.byName[name] >= mostOfOneName {
		return false
	}
	v.long = true
	d.long++
	d.byName[name]++
	return true
}

// makeRoomLocked lets another unknown client send long headers; the lock is the door's.
func (v *visitor) makeRoomLocked() {
	if v.long {
		v.long = false
		v.door.long--
		if v.door.byName[v.name]--; v.door.byName[v.name] == 0 {
			delete(v.door.byName, v.name)
		}
	}
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
	if d.unknown >= d.mostUnknown || d.open >= d.most {
		if out = d.oldestOfMostLocked(); out == nil {
			d.mu.Unlock()
			return nil
		}
		d.forgetLocked(out)
	}
	d.came++
	v := &visitor{Conn: conn, door: d, host: inflight.HostOf(conn.RemoteAddr().String()), came: d.came}
	h := d.hosts[v.host]
	if h == nil {
		h = &host{}
		d.hosts[v.host] = h
	}
	v.place = h.unknown.PushBack(v)
	d.unknown++
	d.open++
	d.mu.Unlock()
	if out != nil {
		_ = out.Conn.Close()
		d.dropped()
	}
	return v
}

// oldestOfMostLocked is the oldest unknown client of the address that has most of them; of
// several such addresses the oldest of all.
func (d *door) oldestOfMostLocked() *visitor {
	var out *visitor
	most := 0
	for _, h := range d.hosts {
		n := h.unknown.Len()
		if n == 0 || n < most {
			continue
		}
		v, _ := h.unknown.Front().Value.(*visitor)
		if n > most || v.came < out.came {
			out, most = v, n
		}
	}
	return out
}

// forgetLocked gives a visitor's place free.
func (d *door) forgetLocked(v *visitor) {
	if v.left {
		return
	}
	v.left = true
	v.makeRoomLocked()
	d.open--
	if v.byToken {
		d.byToken--
	}
	h := d.hosts[v.host]
	switch {
	case v.kept:
		v.keepNoMoreLocked()
	case v.place != nil:
		h.unknown.Remove(v.place)
		v.place = nil
		d.unknown--
	default:
		h.known--
	}
	if h.unknown.Len() == 0 && h.known == 0 && h.kept == 0 {
		delete(d.hosts, v.host)
	}
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.door.mu.Lock()
	v.door.forgetLocked(v)
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

// keptPlaces is which part of all places is kept from those who are known by a token: of a
// right that everybody in a cluster has, a few addresses would hold all, and no apiserver
// got in, which comes with a certificate.
const keptPlaces = 8

// trust takes v from the unknown clients, unless so many of its address are known
// that it is no better than a flood, or so many in all without a certificate.
func (v *visitor) trust() {
	d := v.door
	d.mu.Lock()
	defer d.mu.Unlock()
	v.makeRoomLocked()
	h := d.hosts[v.host]
	if v.left || v.place == nil && !v.kept || h.known >= d.mostKnownOfOne || !v.certified && d.byToken >= d.most-d.most/keptPlaces {
		return
	}
	if !v.certified {
		v.byToken = true
		d.byToken++
	}
	if v.kept {
		v.keepNoMoreLocked()
	} else {
		h.unknown.Remove(v.place)
		v.place = nil
		d.unknown--
	}
	h.known++
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
// was authorised, so that no unknown client takes its place.
func Trust(ctx context.Context) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		v.trust()
	}
}

// Whose says whether the connection of a request's context belongs to somebody who was
// authorised or whose certificate is good, and the name in that; empty without one. A
// certificate that was not verified names nobody.
func Whose(ctx context.Context) (name string, known bool) {
	v, ok := ctx.Value(visitorKey{}).(*visitor)
	if !ok {
		return "", false
	}
	v.door.mu.Lock()
	defer v.door.mu.Unlock()
	return v.name, !v.left && (v.certified || v.place == nil)
}
