package inflight

import (
	"net"
	"net/netip"
	"sync"
)

// ReviewsConfig says how many reviews may be under way at once.
type ReviewsConfig struct {
	// Most is how many in all, MostOfOne of one address.
	Most, MostOfOne int
	// KnownOnly is how many of Most are kept for callers whose identity is
	// known already: a flood of invented tokens leaves these free.
	KnownOnly int
}

// Reviews bounds how many questions to the apiserver are under way, in all and
// of one address, so that nobody can have the gateway flood it. Safe for
// concurrent use; see NewReviews.
type Reviews struct {
	cfg ReviewsConfig

	mu     sync.Mutex
	all    int
	byHost map[string]int
}

// NewReviews returns Reviews.
func NewReviews(cfg ReviewsConfig) *Reviews { return &Reviews{cfg: cfg, byHost: map[string]int{}} }

// Begin returns what ends a review for a request from address (host:port), or
// nil when there are too many. known says that it is certain who asks.
func (l *Reviews) Begin(address string, known bool) (end func()) {
	host := HostOf(address)
	most := l.cfg.Most
	if known {
		host += " known" // whatever unknown clients of the address do
	} else {
		most -= l.cfg.KnownOnly
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= most || l.byHost[host] >= l.cfg.MostOfOne {
		return nil
	}
	l.all++
	l.byHost[host]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.byHost[host]--; l.byHost[host] == 0 {
			delete(l.byHost, host)
		}
	}
}

// HostOf is what counts as one address: an IPv4 address, or the /64 of an IPv6
// one, as every machine has a whole /64 to choose from.
func HostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	net64, err := ip.Prefix(64)
	if err != nil {
		return host
	}
	return net64.String()
}
