// Package logs serves /containerLogs: it reads the query and passes podsync's
// stream on, flushed piece by piece. It must never touch a log file.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
	"github.com/polylet/polylet/services/gateway/internal/route"
)

// Open begins to read a log; next returns the pieces and at the end io.EOF. A
// piece is written once, before next is called again.
type Open func(ctx context.Context, namespace, pod, container string, options *v1.PodLogOptions) (next func() (io.WriterTo, error), err error)

// Sessions is told when a followed log begins and ends.
type Sessions interface {
	// Begin counts a session and returns what ends it.
	Begin() (end func())
}

// followTimeout is how long a followed log may say nothing before the answer
// begins without it.
const followTimeout = time.Second

// Config is what Handler is made from.
type Config struct {
	Open     Open
	Sessions Sessions
	// Streams lets one of a container's two outputs be asked for: the feature
	// gate PodLogsQuerySplitStreams.
	Streams bool
}

// Handler serves /containerLogs/{namespace}/{pod}/{container}.
func Handler(cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		options, status, message := parse(r.URL.Query(), cfg.Streams)
		if status != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"message": %q}`, message)
			return
		}
		if options.Follow {
			defer cfg.Sessions.Begin()()
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		next, err := cfg.Open(ctx, route.Param(r, "namespace"), route.Param(r, "pod"), route.Param(r, "container"), options)
		if err != nil {
			refuse(w, err)
			return
		}
		stream(ctx, w, next, options.Follow)
	})
}

// MissingParts answers for paths that lack an element.
func MissingParts(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"message": "Missing %s."}`, name)
	})
}

// refuse answers before the first byte was sent.
func refuse(w http.ResponseWriter, err error) {
	status := httperror.Status(err)
	if errors.Is(err, rpcerr.ErrPrecondition) {
		status = http.StatusBadRequest
	}
	httperror.ErrorStatus(w, service.Podsync, status, err)
}

type piece struct {
	data io.WriterTo
	err  error
}

func stream(ctx context.Context, w http.ResponseWriter, next func() (io.WriterTo, error), follow bool) {
	out := http.NewResponseController(w)
	begin := func() {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusOK)
	}
	first := make(chan piece, 1)
	go func() {
		data, err := next()
		first <- piece{data, err}
	}()
	var p piece
	if follow {
		timeout := time.NewTimer(followTimeout)
		defer timeout.Stop()
		select {
		case p = <-first:
		case <-timeout.C:
			// The log is there and silent: the client learns that it is heard.
			begin()
			begin = func() {}
			_ = out.Flush()
			p = <-first
		}
	} else {
		p = <-first
	}
	if p.err != nil && p.err != io.EOF && w.Header().Get("Content-Type") == "" {
		refuse(w, p.err)
		return
	}
	begin()
	for p.err == nil {
		if _, err := p.data.WriteTo(w); err != nil {
			return
		}
		if follow {
			// A client that went away is noticed by the next write.
			_ = out.Flush()
		}
		p.data, p.err = next()
	}
	if p.err != io.EOF && ctx.Err() == nil {
		klog.FromContext(ctx).Info("A log ended early", "err", p.err)
		if !follow {
			panic(http.ErrAbortHandler) // so that the client sees that it is not whole
		}
	}
}
