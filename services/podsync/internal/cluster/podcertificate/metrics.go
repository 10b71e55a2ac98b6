package podcertificate

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What a certificate is, as the kubelet's series calls it.
const (
	notYetIssued = "not_yet_issued"
	denied       = "denied"
	failed       = "failed"
	fresh        = "fresh"
	overdue      = "overdue_for_refresh"
	expired      = "expired"
)

// mostSigners is how many signers have series of their own, and otherSigners what the rest
// is counted as: pods name them.
const (
	mostSigners  = 64
	otherSigners = "other"
)

// shown is what the series say of a certificate; who asks for it holds them up no more
// than they hold him up.
type shown struct {
	signer string
	// is is what never changes of itself: denied and failed; empty while it may be issued.
	is                 string
	issued             bool
	refreshAt, expires time.Time
}

func (s shown) at(now time.Time) string {
	switch {
	case s.is != "":
		return s.is
	case !s.issued:
		return notYetIssued
	case !s.expires.IsZero() && now.After(s.expires):
		return expired
	case now.After(s.refreshAt.Add(overdueAfter)):
		return overdue
	}
	return fresh
}

// show keeps what the series say of a certificate. Its turn is the caller's.
func (c *Cache) show(r Request, s *slot) {
	now := shown{signer: r.Source.SignerName, is: s.refusedAs, issued: s.chain != nil, refreshAt: s.refreshAt, expires: s.expires}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.shown = now
}

// count is how many certificates of each signer are in each state.
func (c *Cache) count(now time.Time) map[[2]string]int {
	out := map[[2]string]int{}
	c.mu.Lock()
	defer c.mu.Unlock()
	signers := map[string]bool{}
	for _, all := range c.slots {
		for _, s := range all {
			signers[s.shown.signer] = true
		}
	}
	own := slices.Sorted(maps.Keys(signers))
	own = own[:min(len(own), mostSigners)]
	for _, all := range c.slots {
		for _, s := range all {
			signer := s.shown.signer
			if _, is := slices.BinarySearch(own, signer); !is {
				signer = otherSigners
			}
			out[[2]string{signer, s.shown.at(now)}]++
		}
	}
	return out
}

// Series counts the certificates of a Cache when somebody asks. It implements
// prometheus.Collector.
type Series struct {
	*prometheus.GaugeVec
	cache *Cache

	mu sync.Mutex // one counts at a time
}

// NewSeries returns the Series of a Cache; nil has no certificates.
func NewSeries(c *Cache) *Series {
	return &Series{cache: c, GaugeVec: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelet_podcertificate_states",
		Help: "Gauge vector reporting the number of pod certificate projected volume sources, faceted by signer_name and state.",
	}, []string{"signer_name", "state"})}
}

// Collect implements prometheus.Collector.
func (s *Series) Collect(c chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cache != nil {
		s.Reset()
		for of, n := range s.cache.count(time.Now()) {
			s.WithLabelValues(of[0], of[1]).Set(float64(n))
		}
	}
	s.GaugeVec.Collect(c)
}
