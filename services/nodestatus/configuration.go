package nodestatus

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/nodestatus/internal/apiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/assigned"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// Configuration is how the node's configuration stands, as whoever owns it says.
type Configuration struct {
	// Generation counts the configurations; the one that runs.
	Generation uint64
	// Wrong says that what the operator's files say is not what runs.
	Wrong bool
}

// Assigned is what has become of the configuration that the cluster has assigned to the
// node: which ConfigMaps with which versions are assigned, run and were good last, why what
// is assigned does not run, and until when what the cluster says by now waits; empty: none.
type Assigned = assigned.Stands

// ShowAssigned tells it on the Node. Safe for concurrent use.
func (s *Service) ShowAssigned(a Assigned) {
	if s.assigned != nil {
		s.assigned.Tell(a)
	}
}

// followAssigned follows what the cluster assigns, where it is a source, and returns what
// is to be told of the Node; nil: nothing.
func (s *Service) followAssigned(cfg Config, deps Deps, api *apiserver.Node) func(*v1.Node) {
	if api == nil || !cfg.DynamicConfiguration {
		return nil
	}
	note := func(string) {}
	if deps.Note != nil {
		note = func(message string) { deps.Note("the cluster's configuration", message) }
	}
	s.assigned = assigned.New(assigned.Config{
		NodeName: cfg.NodeName, Nodes: deps.Client.CoreV1().Nodes(), ConfigMaps: deps.Client.CoreV1(), Events: s.events, Note: note, Epoch: rand.Uint64(),
	})
	return s.assigned.Saw
}

// configurationMetrics show it; zero until somebody says something.
type configurationMetrics struct{ generation, wrong prometheus.Gauge }

func newConfigurationMetrics(registry prometheus.Registerer) (*configurationMetrics, error) {
	m := &configurationMetrics{
		generation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "polylet_config_generation", Help: "How many configurations this node has had, the one that runs among them; 0 where nobody counts them.",
		}),
		wrong: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "polylet_config_error", Help: "1 when the node does not run what its configuration files say, since that is invalid, cannot change while it runs, or did not run well; 0 otherwise.",
		}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.generation, m.wrong} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("nodestatus: register metrics of the configuration: %w", err)
		}
	}
	return m, nil
}

// ShowConfiguration puts it into metrics. Safe for concurrent use.
func (s *Service) ShowConfiguration(c Configuration) {
	s.configuration.generation.Set(float64(c.Generation))
	s.configuration.wrong.Set(0)
	if c.Wrong {
		s.configuration.wrong.Set(1)
	}
}

// Announce sends an Event about the Node, as the ones in Config.StartEvents are. Safe
// for concurrent use; it returns at once.
func (s *Service) Announce(ctx context.Context, e Event) {
	s.events.Send(ctx, node.Event{Type: e.Type, Reason: e.Reason, Message: e.Message})
}
