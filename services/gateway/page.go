package gateway

import (
	"fmt"
	"net/http"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/exposition"
	"github.com/polylet/polylet/services/gateway/internal/nodepage"
	"github.com/polylet/polylet/services/gateway/internal/peer"
)

// page is the port for people, and of cAdvisor's metrics, as the kubelet once had. Any
// process of this machine may ask it, those of pods in its network too: it has places of its
// own, or a few who read slowly would take all memory of stats.
func (r *routes) page() http.Handler {
	return documentClass("documents of the page").Wrap(nodepage.New(nodepage.Config{
		NodeName: r.cfg.NodeName, Peers: peer.NewPage(r.peers.Podsync, r.peers.Probes, r.peers.Stats, r.peers.Nodestatus),
		Metrics: exposition.Text(service.Stats, r.stats.CAdvisor),
	}))
}

// pageMissing reports whether the page's port is open. A node works without:
// somebody else's port is no reason to serve no logs.
func (s *Service) pageMissing(address string) func(error) {
	return func(err error) {
		if err == nil {
			s.deps.Health.Set("page", true, "")
			return
		}
		s.deps.Health.Set("page", false, fmt.Sprintf("the node's page cannot be served: %v: free the address, or choose another than %s with --node-page-address (empty: none)", err, address))
	}
}
