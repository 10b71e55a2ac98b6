// Package nodepage is the node's page for people on :4194: one static page and a
// few JSON documents that it is drawn from, got from the other processes over
// the same RPCs that the command line uses. It answers GET only, shows no values
// of environment variables, and keeps nothing but what it asked last. It must
// never change anything.
package nodepage

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

//go:embed static
var static embed.FS

// askTimeout bounds one call to another process; what does not answer is left
// out of the page, with the reason.
const askTimeout = 2 * time.Second

// Config of the page.
type Config struct {
	// NodeName is shown, and is a name under which the page may be asked for.
	NodeName string
	// Podsync, Probes, Stats and Nodestatus are connections to the sockets.
	Podsync, Probes, Stats, Nodestatus grpc.ClientConnInterface
	// Metrics serves /metrics: cAdvisor's.
	Metrics http.Handler
}

// page is the handler's state.
type page struct {
	cfg      Config
	pods     podsapi.PodsClient
	podsync  podsyncv1.PodSyncServiceClient
	probes   probesv1.ProbesServiceClient
	stats    statsv1.StatsServiceClient
	node     nodestatusv1.NodeStatusServiceClient
	services map[string]commonv1.CommonServiceClient

	overview, usage shared
	// began is when the gateway, which answers for itself, was made.
	began time.Time
}

// New returns the page's handler. All fields of cfg are needed.
func New(cfg Config) http.Handler {
	p := &page{
		cfg:     cfg,
		began:   time.Now(),
		pods:    podsapi.NewPodsClient(cfg.Podsync),
		podsync: podsyncv1.NewPodSyncServiceClient(cfg.Podsync),
		probes:  probesv1.NewProbesServiceClient(cfg.Probes),
		stats:   statsv1.NewStatsServiceClient(cfg.Stats),
		node:    nodestatusv1.NewNodeStatusServiceClient(cfg.Nodestatus),
		services: map[string]commonv1.CommonServiceClient{
			service.Podsync: commonv1.NewCommonServiceClient(cfg.Podsync), service.Probes: commonv1.NewCommonServiceClient(cfg.Probes),
			service.Stats: commonv1.NewCommonServiceClient(cfg.Stats), service.Nodestatus: commonv1.NewCommonServiceClient(cfg.Nodestatus),
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", asset("index.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /page.css", asset("page.css", "text/css; charset=utf-8"))
	for _, script := range []string{"page.js", "pod.js", "dom.js", "chart.js", "words.js"} {
		mux.HandleFunc("GET /"+script, asset(script, "text/javascript; charset=utf-8"))
	}
	mux.Handle("GET /metrics", cfg.Metrics)
	mux.HandleFunc("GET /api/overview", p.document(p.overview.get, p.askOverview))
	mux.HandleFunc("GET /api/usage", p.document(p.usage.get, p.askUsage))
	mux.HandleFunc("GET /api/pods/{namespace}/{name}", p.pod)
	return Guard(cfg.NodeName, mux)
}

// asset serves an embedded file; a browser asks again each time and gets it
// only when it is another one.
func asset(name, contentType string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := static.ReadFile("static/" + name)
		if err != nil {
			httperror.Text(w, http.StatusNotFound, "404: Page Not Found")
			return
		}
		sum := sha256.Sum256(body)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", "no-cache")
		if strings.Contains(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body) // a client that went away needs no answer
	}
}

// document serves what ask gets as JSON, at most once a second for everybody.
func (p *page) document(get func(context.Context, func(context.Context) any) ([]byte, error), ask func(context.Context) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := get(r.Context(), ask)
		if err != nil {
			httperror.Text(w, http.StatusInternalServerError, err.Error())
			return
		}
		write(w, body)
	}
}

func write(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body)
}

// pod serves what is known of one pod.
func (p *page) pod(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	ref := &podsyncv1.PodRef{Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), Uid: r.URL.Query().Get("uid")}
	out, err := p.askPod(ctx, ref)
	if err != nil {
		httperror.Error(w, service.Podsync, err)
		return
	}
	body, err := json.Marshal(out)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not encode a pod for the page", "pod", ref.GetNamespace()+"/"+ref.GetName())
		httperror.Text(w, http.StatusInternalServerError, "encoding the pod failed")
		return
	}
	write(w, body)
}
