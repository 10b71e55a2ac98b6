package gateway

import (
	"net/http"

	"github.com/polylet/polylet/services/gateway/internal/document"
	"github.com/polylet/polylet/services/gateway/internal/exposition"
	"github.com/polylet/polylet/services/gateway/internal/logs"
	"github.com/polylet/polylet/services/gateway/internal/peer"
	"github.com/polylet/polylet/services/gateway/internal/rest"
	"github.com/polylet/polylet/services/gateway/internal/route"
	"github.com/polylet/polylet/services/gateway/internal/session"
	"github.com/polylet/polylet/services/gateway/internal/traffic"
)

// routes says which port serves which path. What crosses is a document of
// Kubernetes' own shape (package rest, gateway.yaml) or a stream.
type routes struct {
	cfg       Config
	podsync   *peer.Podsync
	stats     *peer.Stats
	documents http.Handler
	merged    http.Handler
	probes    http.Handler
	sessions  session.Sessions
	meter     *traffic.Meter
	// peers are the connections, for the page.
	peers Deps
}

func newRoutes(cfg Config, deps Deps, meter *traffic.Meter) (*routes, error) {
	if cfg.ConfigJSON == nil {
		cfg.ConfigJSON = func() []byte { return []byte("{}") }
	}
	documents, err := rest.New(rest.Config{Podsync: deps.Podsync, Stats: deps.Stats, Own: cfg.ConfigJSON})
	if err != nil {
		return nil, err
	}
	podsync, probes := peer.NewCommon(deps.Podsync), peer.NewCommon(deps.Probes)
	r := &routes{
		cfg:       cfg,
		podsync:   peer.NewPodsync(deps.Podsync),
		stats:     peer.NewStats(deps.Stats),
		documents: documents,
		meter:     meter,
		peers:     deps,
		merged: exposition.Merged(
			exposition.Source{Service: "podsync", Gather: podsync.Families("")},
			exposition.Source{Service: "probes", Gather: probes.Families("")},
			exposition.Source{Service: "stats", Gather: peer.NewCommon(deps.Stats).Families("")},
			exposition.Source{Service: "nodestatus", Gather: peer.NewCommon(deps.Nodestatus).Families("")},
			exposition.Source{Service: "gateway", Gather: gather(deps.Metrics)},
		),
		probes: exposition.One(exposition.Source{Service: "probes", Gather: probes.Families("probes")}),
	}
	r.sessions = session.Sessions{Runtime: r.podsync, Meter: meter}
	return r, nil
}

// ping is the port of /healthz alone: it says that the process answers.
func (r *routes) ping() http.Handler {
	table := &route.Table{}
	table.Add(
		route.Route{Pattern: "/healthz", Handler: document.Healthz(document.Ping())},
		route.Route{Pattern: "/healthz/ping", Handler: document.HealthzOne(document.Ping())},
	)
	return table
}

// common is what both API ports serve.
func (r *routes) common() *route.Table {
	checks := []document.Check{document.Ping(), {Name: "syncloop", Run: r.podsync.Answers}}
	table := &route.Table{}
	table.Add(
		route.Route{Pattern: "/healthz", Handler: document.Healthz(checks...)},
		route.Route{Pattern: "/pods", Methods: []string{http.MethodGet}, Handler: r.documents},
		route.Route{Pattern: "/stats/summary", Methods: []string{http.MethodGet, http.MethodPost}, Handler: r.documents},
		route.Route{Pattern: "/metrics", Handler: r.merged},
		route.Route{Pattern: "/metrics/cadvisor", Handler: exposition.Text("stats", r.stats.CAdvisor)},
		route.Route{Pattern: "/metrics/resource", Handler: exposition.Text("stats", r.stats.Resource)},
		route.Route{Pattern: "/metrics/probes", Handler: r.probes},
	)
	for _, c := range checks {
		table.Add(route.Route{Pattern: "/healthz/" + c.Name, Handler: document.HealthzOne(c)})
	}
	return table
}

// debugPrefixes answer 405 where debugging handlers are off.
var debugPrefixes = [...]string{
	"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/",
}

func (r *routes) readOnly() http.Handler {
	table := r.common()
	r.addDisabled(table)
	return table
}

func (r *routes) addDisabled(table *route.Table) {
	for _, prefix := range debugPrefixes {
		table.Add(route.Route{Pattern: prefix + "*", Handler: document.Disabled("Debug endpoints are disabled.")})
	}
}

func (r *routes) secure() http.Handler {
	table := r.common()
	table.Add(route.Route{Pattern: "/spec", Handler: r.documents})
	if !r.cfg.DebuggingHandlers {
		r.addDisabled(table)
		return table
	}
	get, getPost := []string{http.MethodGet}, []string{http.MethodGet, http.MethodPost}
	table.Add(
		route.Route{Pattern: "/configz", Handler: r.documents},
		route.Route{Pattern: "/runningpods/", Methods: get, Handler: r.documents},
		route.Route{Pattern: "/containerLogs/{namespace}/{pod}/{container}", Methods: get, Handler: logs.Handler(r.podsync.Logs, r.meter)},
		route.Route{Pattern: "/containerLogs//*", Methods: get, Handler: logs.MissingParts("podNamespace")},
		route.Route{Pattern: "/containerLogs/{namespace}//*", Methods: get, Handler: logs.MissingParts("podID")},
		route.Route{Pattern: "/containerLogs/{namespace}/{pod}/", Methods: get, Handler: logs.MissingParts("container name")},
	)
	const container = "/{namespace}/{pod}/{container}"
	const unique = "/{namespace}/{pod}/{uid}/{container}"
	for _, pattern := range []string{container, unique} {
		table.Add(
			route.Route{Pattern: "/exec" + pattern, Methods: getPost, Handler: r.sessions.Exec()},
			route.Route{Pattern: "/attach" + pattern, Methods: getPost, Handler: r.sessions.Attach()},
			route.Route{Pattern: "/run" + pattern, Methods: []string{http.MethodPost}, Handler: r.sessions.Run()},
		)
	}
	for _, pattern := range []string{"/{namespace}/{pod}", "/{namespace}/{pod}/{uid}"} {
		table.Add(route.Route{Pattern: "/portForward" + pattern, Methods: getPost, Handler: r.sessions.PortForward()})
	}
	return table
}
