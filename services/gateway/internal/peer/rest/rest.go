// Package rest maps the documents of the node API to RPCs with grpc-gateway:
// gateway.yaml says which field of which response a path shows, gen is made
// from it. It must never let anything of an HTTP request reach a process but
// what narrow keeps: no header, no address, no body.
package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/services/gateway/internal/document"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
	commongw "github.com/polylet/polylet/services/gateway/internal/peer/rest/gen/polylet/common/v1"
	podsyncgw "github.com/polylet/polylet/services/gateway/internal/peer/rest/gen/polylet/podsync/v1"
	statsgw "github.com/polylet/polylet/services/gateway/internal/peer/rest/gen/polylet/stats/v1"
)

const (
	// timeout bounds the call behind one document.
	timeout = 30 * time.Second
	// configTimeout is short: there is a good answer without podsync.
	configTimeout = 2 * time.Second
)

// Config is what Documents are made from; every field is needed.
type Config struct {
	// Podsync and Stats are connections to the sockets.
	Podsync, Stats grpc.ClientConnInterface
	// Own is the configuration in effect in this process as JSON: /configz
	// shows podsync's, which knows the runtime's cgroup driver, while it answers.
	Own func() []byte
}

// Documents serves every path of gateway.yaml. It takes any method: POST as
// itself and all others as GET, because the table of routes has decided which
// are served. See New.
type Documents struct {
	mux              *runtime.ServeMux
	own              func() []byte
	desired, running document.PodList
	pieces           pieces
}

// New returns Documents; nothing is called before the first request.
func New(cfg Config) (*Documents, error) {
	d := &Documents{own: cfg.Own}
	d.mux = runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, fields{}),
		runtime.WithForwardResponseOption(d.streamPods),
		runtime.WithForwardResponseRewriter(d.rewrite),
		runtime.WithErrorHandler(d.fail),
		// narrow leaves nothing to match; should it ever, nothing matches.
		runtime.WithIncomingHeaderMatcher(nothing),
		runtime.WithOutgoingHeaderMatcher(nothing),
		runtime.WithOutgoingTrailerMatcher(nothing),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisablePathLengthFallback(),
	)
	ctx := context.Background() // the clients' connections are not ours to close
	err := errors.Join(
		podsyncgw.RegisterPodSyncServiceHandlerClient(ctx, d.mux, podsyncv1.NewPodSyncServiceClient(cfg.Podsync)),
		statsgw.RegisterStatsServiceHandlerClient(ctx, d.mux, statsv1.NewStatsServiceClient(cfg.Stats)),
		commongw.RegisterCommonServiceHandlerClient(ctx, d.mux, commonv1.NewCommonServiceClient(cfg.Podsync)),
	)
	if err != nil {
		return nil, fmt.Errorf("registering the documents of gateway.yaml: %w", err)
	}
	return d, nil
}

func nothing(string) (string, bool) { return "", false }

// keptKey is where a call carries the list that it asks to be newer than: what
// is kept may be another one when the answer comes.
type keptKey struct{}

// ServeHTTP implements http.Handler.
func (d *Documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit, path := timeout, strings.TrimSuffix(r.URL.Path, "/")
	if path == "/configz" {
		limit = configTimeout
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	var kept *document.Kept
	if path == "/pods" {
		if kept = d.desired.Kept(); kept != nil {
			ctx = context.WithValue(ctx, keptKey{}, kept)
		}
	}
	call, err := narrow(ctx, w, r, path, kept)
	if err != nil {
		httperror.Text(w, http.StatusBadRequest, fmt.Sprintf("Unable to read the query: %v", err))
		return
	}
	d.mux.ServeHTTP(w, call)
}
