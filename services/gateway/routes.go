package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/checkpoint"
	"github.com/polylet/polylet/services/gateway/internal/debug"
	"github.com/polylet/polylet/services/gateway/internal/document"
	"github.com/polylet/polylet/services/gateway/internal/exposition"
	"github.com/polylet/polylet/services/gateway/internal/httpmetrics"
	"github.com/polylet/polylet/services/gateway/internal/inflight"
	"github.com/polylet/polylet/services/gateway/internal/logs"
	"github.com/polylet/polylet/services/gateway/internal/nodelog"
	"github.com/polylet/polylet/services/gateway/internal/peer"
	"github.com/polylet/polylet/services/gateway/internal/peer/rest"
	"github.com/polylet/polylet/services/gateway/internal/route"
	"github.com/polylet/polylet/services/gateway/internal/streaming"
	"github.com/polylet/polylet/services/gateway/internal/zpage"
)

// routes says which port serves which path. What crosses is a document of
// Kubernetes' own shape (package rest, gateway.yaml) or a stream.
type routes struct {
	cfg        Config
	podsync    *peer.Podsync
	stats      *peer.Stats
	nodestatus *peer.Nodestatus
	// common are the five in the order in which they are shown.
	common    []process
	documents http.Handler
	merged    http.Handler
	probes    http.Handler
	slis      *exposition.SLIs
	sessions  streaming.Sessions
	meter     *httpmetrics.Meter
	// peers are the connections, for the page.
	peers Deps
	// reading, open and streaming bound what documents of the secure port,
	// documents of the port that anybody may ask, and streams may cost; long are the
	// streams whose requests are long.
	reading, open, streaming, long *inflight.Class
}

// process is one of the five.
type process struct {
	name string
	*peer.Common
}

const jsonType = "application/json"

// Bounds of the classes of requests.
const (
	// documentsOfOne is how many of the documents one caller may have under way: who reads
	// none of them holds each for documentTime.
	documentsAtOnce = 32
	documentsOfOne  = 24
	documentWait    = 10 * time.Second
	// documentTime is how long a document may take to be asked for and received, and
	// documentSlow how long to be received while others wait: a dozen addresses have all of
	// them, each what one may.
	documentTime = 2 * time.Minute
	documentSlow = 4 * time.Second
	// What is sent to ask for a document: a form of a few words.
	bodyTime  = 3 * time.Second
	bodyBytes = 64 << 10
	// streamsOfOne is how many of the streams may be with pods of one namespace: who
	// may exec into one pod could else keep everybody from the logs of all.
	streamsAtOnce = 512
	streamsOfOne  = 384
	// readyTimeout is how long a session, a log or a review waits for a process that is just
	// being started again: a person's command does not end because it came then.
	readyTimeout = 3 * time.Second
	// longRequest is how many bytes of a stream's request are no matter. What is longer,
	// up to the megabyte that the apiserver lets through, is held as long as the stream,
	// decoded beside what came: hundreds of them are all memory that this process may
	// have.
	longRequest = 16 << 10
	longAtOnce  = 64
	longOfOne   = 32
)

func newRoutes(cfg Config, deps Deps, meter *httpmetrics.Meter) (*routes, error) {
	if cfg.ConfigJSON == nil {
		cfg.ConfigJSON = func() []byte { return []byte("{}") }
	}
	documents, err := rest.New(rest.Config{Podsync: deps.Podsync, Stats: deps.Stats, Own: cfg.ConfigJSON})
	if err != nil {
		return nil, err
	}
	slis, err := exposition.NewSLIs()
	if err != nil {
		return nil, err
	}
	r := &routes{
		cfg: cfg, documents: documents, slis: slis, meter: meter, peers: deps,
		podsync: peer.NewPodsync(rpc.WaitForReady(deps.Podsync, readyTimeout)), stats: peer.NewStats(deps.Stats), nodestatus: peer.NewNodestatus(deps.Nodestatus),
		reading:   documentClass("documents"),
		open:      documentClass("documents of the read-only port"),
		streaming: inflight.New(inflight.Config{Name: "streams", AtOnce: streamsAtOnce, MostOfOne: streamsOfOne, Of: namespace}),
		long:      inflight.New(inflight.Config{Name: "streams with long requests", AtOnce: longAtOnce, MostOfOne: longOfOne, Of: namespace}),
	}
	sources := []exposition.Source{}
	for _, p := range []struct {
		name string
		conn grpc.ClientConnInterface
	}{{service.Podsync, deps.Podsync}, {service.Probes, deps.Probes}, {service.Stats, deps.Stats}, {service.Nodestatus, deps.Nodestatus}, {service.Gateway, deps.Self}} {
		common := peer.NewCommon(p.conn)
		r.common = append(r.common, process{p.name, common})
		source := exposition.Source{Service: p.name, Gather: common.Families("")}
		if p.name == service.Gateway {
			source.Gather = gather(deps.Metrics)
		}
		sources = append(sources, source)
	}
	r.merged = exposition.Merged(sources...)
	r.probes = exposition.One(exposition.Source{Service: service.Probes, Gather: r.common[1].Families(service.Probes)})
	r.sessions = streaming.Sessions{Runtime: r.podsync, Meter: meter, NoTranslation: cfg.KeepWebSockets}
	return r, nil
}

// namespace is whose a stream is. Of those of no pod, the node's logs and profiles, many
// that nobody reads would else take all.
func namespace(r *http.Request) string {
	if name := route.Param(r, "namespace"); name != "" {
		return "namespace " + name
	}
	return "the node"
}

// caller is whose a document is.
func caller(r *http.Request) string {
	name, _ := whose(r)
	return name
}

// stream serves a stream within its bounds.
func (r *routes) stream(next http.Handler) http.Handler {
	next = r.streaming.Wrap(next)
	long := r.long.Wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if inflight.RequestBytes(req) > longRequest {
			long.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

func documentClass(name string) *inflight.Class {
	return inflight.New(inflight.Config{
		Name: name, AtOnce: documentsAtOnce, MostOfOne: documentsOfOne, Of: caller,
		Wait: documentWait, Deadline: documentTime, Slow: documentSlow, BodyTime: bodyTime, BodyBytes: bodyBytes,
	})
}

// ping is the port of /healthz alone: it says that the process answers.
func (r *routes) ping() http.Handler {
	table := &route.Table{}
	table.Add(
		route.Route{Pattern: "/healthz", Handler: document.Healthz(r.slis, document.Ping())},
		route.Route{Pattern: "/healthz/ping", Handler: document.HealthzOne(document.Ping())},
	)
	return table
}

// checks are the kubelet's, in its order, and behind them whether each of the
// other processes answers.
func (r *routes) checks() []document.Check {
	podsync := r.common[0]
	checks := []document.Check{
		document.Ping(),
		{Name: "log", Run: r.logsAreWritten},
		{Name: "syncloop", Run: podsync.Check("syncloop")},
		{Name: "device-plugin", Run: podsync.Check("device-plugin")},
	}
	for _, p := range r.common[:len(r.common)-1] {
		checks = append(checks, document.Check{Name: p.name, Run: p.Answers})
	}
	for i, c := range checks {
		checks[i] = document.Shared(c)
	}
	return checks
}

// logsAreWritten is the check "log" of all processes that answer; that one does
// not has a check of its own.
func (r *routes) logsAreWritten(ctx context.Context) error {
	results := make(chan error, len(r.common))
	for _, p := range r.common {
		go func() { results <- p.Check("log")(ctx) }()
	}
	var errs []error
	for range r.common {
		if err := <-results; err != nil && !errors.Is(err, rpcerr.ErrUnavailable) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// shared is what both API ports serve, documents in a class. others are the
// methods of paths that answer alike to all; none is any.
func (r *routes) shared(class *inflight.Class, others []string) *route.Table {
	get, getPost := []string{http.MethodGet}, []string{http.MethodGet, http.MethodPost}
	checks := r.checks()
	table := &route.Table{}
	table.Add(
		route.Route{Pattern: "/healthz", Methods: others, Handler: document.Healthz(r.slis, checks...)},
		route.Route{Pattern: "/pods", Slash: true, Methods: get, Produces: jsonType, Handler: class.Wrap(r.documents)},
		route.Route{Pattern: "/stats/summary", Slash: true, Methods: getPost, Produces: jsonType, Handler: class.Wrap(r.documents)},
		route.Route{Pattern: "/metrics", Methods: others, Handler: class.Wrap(r.merged)},
		route.Route{Pattern: "/metrics/cadvisor", Methods: others, Handler: class.Wrap(exposition.Text(service.Stats, r.stats.CAdvisor))},
		route.Route{Pattern: "/metrics/resource", Methods: others, Handler: class.Wrap(exposition.Text(service.Stats, r.stats.Resource))},
		route.Route{Pattern: "/metrics/probes", Methods: others, Handler: class.Wrap(r.probes)},
		route.Route{Pattern: "/metrics/slis", Methods: others, Handler: class.Wrap(r.slis)},
	)
	for _, c := range checks {
		table.Add(route.Route{Pattern: "/healthz/" + c.Name, Methods: others, Handler: document.HealthzOne(c)})
	}
	return table
}

// debugPrefixes answer 405 where debugging handlers are off.
var debugPrefixes = [...]string{
	"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/",
}

// readOnly is for those whom nobody asks who they are: they may read.
func (r *routes) readOnly() http.Handler {
	table := r.shared(r.open, []string{http.MethodGet, http.MethodHead})
	r.addDisabled(table)
	return table
}

func (r *routes) addDisabled(table *route.Table) {
	for _, prefix := range debugPrefixes {
		table.Add(route.Route{Pattern: prefix + "*", Handler: document.Disabled("Debug endpoints are disabled.")})
	}
}

func (r *routes) secure() http.Handler {
	table := r.shared(r.reading, nil)
	table.Add(route.Route{Pattern: "/spec", Handler: r.reading.Wrap(r.documents)})
	if !r.cfg.DebuggingHandlers {
		r.addDisabled(table)
		return table
	}
	table.Add(
		route.Route{Pattern: "/configz", Handler: r.reading.Wrap(r.documents)},
		toDirectory("/runningpods"),
		route.Route{Pattern: "/runningpods/", Methods: []string{http.MethodGet}, Produces: jsonType, Handler: r.reading.Wrap(r.documents)},
	)
	r.addLogs(table)
	r.addSessions(table)
	r.addDebug(table)
	if r.cfg.Checkpoint {
		table.Add(route.Route{
			Pattern: "/checkpoint/{namespace}/{pod}/{container}", Slash: true, Methods: []string{http.MethodPost}, Produces: jsonType,
			Handler: r.stream(checkpoint.Handler(r.podsync.Checkpoint)),
		})
	}
	if r.cfg.Flagz {
		table.Add(route.Route{Pattern: "/flagz", Handler: r.reading.Wrap(zpage.Flagz(r.cfg.FlagValues))})
	}
	if r.cfg.Statusz {
		// The page's own path is in its list.
		paths := append(table.Fixed(), "/statusz")
		slices.Sort(paths)
		table.Add(route.Route{Pattern: "/statusz", Handler: r.reading.Wrap(zpage.Statusz(r.cfg.KubernetesVersion, paths))})
	}
	return table
}

// addLogs adds containers' logs and the node's.
func (r *routes) addLogs(table *route.Table) {
	get := []string{http.MethodGet}
	table.Add(
		route.Route{
			Pattern: "/containerLogs/{namespace}/{pod}/{container}", Slash: true, Methods: get,
			Handler: r.stream(logs.Handler(logs.Config{Open: r.podsync.Logs, Sessions: r.meter, Streams: r.cfg.LogStreams})),
		},
		route.Route{Pattern: "/containerLogs//*", Methods: get, Handler: logs.MissingParts("podNamespace")},
		route.Route{Pattern: "/containerLogs/{namespace}//*", Methods: get, Handler: logs.MissingParts("podID")},
		route.Route{Pattern: "/containerLogs/{namespace}/{pod}/", Methods: get, Handler: logs.MissingParts("container name")},
	)
	table.Add(toDirectory("/logs"))
	if !r.cfg.SystemLogHandler {
		table.Add(route.Route{Pattern: "/logs/*", Handler: document.Disabled("logs endpoint is disabled.")})
		return
	}
	table.Add(route.Route{Pattern: "/logs/*", Methods: get, Handler: r.stream(nodelog.Handler(r.nodestatus, r.cfg.SystemLogQuery))})
}

// toDirectory leads from a path to what is below it, as the kubelet does.
func toDirectory(path string) route.Route {
	return route.Route{Pattern: path, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, (&url.URL{Path: path + "/", RawQuery: req.URL.RawQuery}).String(), http.StatusTemporaryRedirect)
	})}
}

// addSessions adds exec, attach, run and port-forward.
func (r *routes) addSessions(table *route.Table) {
	getPost := []string{http.MethodGet, http.MethodPost}
	for _, pattern := range []string{"/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"} {
		table.Add(
			route.Route{Pattern: "/exec" + pattern, Slash: true, Methods: getPost, Handler: r.stream(r.sessions.Exec())},
			route.Route{Pattern: "/attach" + pattern, Slash: true, Methods: getPost, Handler: r.stream(r.sessions.Attach())},
			route.Route{Pattern: "/run" + pattern, Slash: true, Methods: []string{http.MethodPost}, Handler: r.stream(r.sessions.Run())},
		)
	}
	for _, pattern := range []string{"/{namespace}/{pod}", "/{namespace}/{pod}/{uid}"} {
		table.Add(route.Route{Pattern: "/portForward" + pattern, Slash: true, Methods: getPost, Handler: r.stream(r.sessions.PortForward())})
	}
}

// addDebug adds profiles and the verbosity.
func (r *routes) addDebug(table *route.Table) {
	var processes []debug.Named
	for _, p := range r.common {
		processes = append(processes, debug.Named{Name: p.name, Process: p.Common})
	}
	pprof := route.Route{Pattern: "/debug/pprof/*", Handler: document.Disabled("profiling endpoint is disabled.")}
	if r.cfg.ProfilingHandler {
		pprof.Methods, pprof.Handler = []string{http.MethodGet}, r.stream(debug.Pprof(processes...))
	}
	flags := route.Route{Pattern: "/debug/flags/v", Handler: document.Disabled("flags endpoint is disabled.")}
	if r.cfg.DebugFlagsHandler {
		flags.Methods, flags.Handler = []string{http.MethodPut}, r.reading.Wrap(debug.Verbosity(processes...))
	}
	table.Add(toDirectory("/debug/pprof"), pprof, flags)
}
