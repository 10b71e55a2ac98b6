// Package nodepage is the node's page for people on :4194: one static page and a
// few JSON documents that it is drawn from. It owns what stands in them, answers
// GET only, shows no values of environment variables, and keeps nothing but what it
// asked last. It must never change anything.
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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

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
	// Peers are the other processes.
	Peers Peers
	// Metrics serves /metrics: cAdvisor's.
	Metrics http.Handler
}

// Peers are asked for what the page shows; *peer.Page is them. What a probe's attempt
// said, and all else that may be secret, is not in the answers.
type Peers interface {
	// Pods are those of the node with their status.
	Pods(ctx context.Context) ([]v1.Pod, error)
	// Waits are what pods wait for.
	Waits(ctx context.Context) (map[types.UID][]Wait, error)
	// PodEvents and NodeEvents are what podsync and nodestatus recorded, the newest first.
	PodEvents(ctx context.Context) ([]Event, error)
	NodeEvents(ctx context.Context) ([]Event, error)
	// Shortages is what the node is short of, and what was decided, the newest first.
	Shortages(ctx context.Context) (*Shortages, error)
	// Node is the node, and whether the apiserver has it.
	Node(ctx context.Context) (node *v1.Node, registered bool, err error)
	// Process is what a process says of itself.
	Process(ctx context.Context, name string) (Process, error)
	// Summary is the document of /stats/summary.
	Summary(ctx context.Context) ([]byte, error)
	// Explain is what is known of a pod, by name or, where it is not empty, by uid; without
	// Probes.
	Explain(ctx context.Context, namespace, name, uid string) (*PodPage, error)
	// Probes are those of a pod.
	Probes(ctx context.Context, namespace, name string) ([]Probe, error)
}

// page is the handler's state.
type page struct {
	cfg Config

	overview, usage shared
	// began is when the gateway, which answers for itself, was made.
	began time.Time
}

// New returns the page's handler. All fields of cfg are needed.
func New(cfg Config) http.Handler {
	p := &page{cfg: cfg, began: time.Now()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", asset("index.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /page.css", asset("page.css", "text/css; charset=utf-8"))
	for _, script := range []string{"page.js", "pod.js", "short.js", "dom.js", "chart.js", "words.js"} {
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
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	out, err := p.askPod(ctx, namespace, name, r.URL.Query().Get("uid"))
	if err != nil {
		httperror.Error(w, service.Podsync, err)
		return
	}
	body, err := json.Marshal(out)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not encode a pod for the page", "pod", klog.KRef(namespace, name))
		httperror.Text(w, http.StatusInternalServerError, "encoding the pod failed")
		return
	}
	write(w, body)
}
