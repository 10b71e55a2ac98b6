package nodelog

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Entry is a file or a directory of the node's logs.
type Entry struct {
	Name      string
	Size      int64
	Modified  time.Time
	Directory bool
}

// Node reads the node's logs. Paths have slashes and begin without one; errors
// are of rpcerr's classes.
type Node interface {
	// Stat describes a path and what is in it if it is a directory.
	Stat(ctx context.Context, path string) (Entry, []Entry, error)
	// Read returns the pieces of a file from an offset on, and at its end io.EOF.
	Read(ctx context.Context, path string, offset int64) (next func() ([]byte, error), err error)
	// Query returns the pieces of services' logs, and at the end io.EOF.
	Query(ctx context.Context, q *Query) (next func() ([]byte, error), err error)
}

// Handler serves /logs/ and below; queries says whether services may be asked for.
func Handler(node Node, queries bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/logs/")
		if queries {
			q, refused := parse(r.URL.Query())
			switch {
			case refused != nil:
				httperror.Text(w, refused.status, refused.Error())
				return
			case q != nil && name != "":
				httperror.Text(w, http.StatusNotAcceptable, "path not allowed in query mode")
				return
			case q != nil && len(q.Services) > 0:
				services(w, r, node, q)
				return
			case q != nil:
				name = file(q.Files[0])
			}
		}
		files(w, r, node, name)
	})
}

// queryTime is how long a client may take to receive the logs of services, for which
// nodestatus has half a minute: few of them may be asked for at once.
const queryTime = time.Minute

// services streams the log of services.
func services(w http.ResponseWriter, r *http.Request, node Node, q *Query) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	next, err := node.Query(ctx, q)
	if err != nil {
		httperror.Error(w, service.Nodestatus, err)
		return
	}
	data, err := next()
	if err != nil && !errors.Is(err, io.EOF) {
		httperror.Error(w, service.Nodestatus, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// A writer that knows no deadlines is a test's.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(queryTime))
	var out io.Writer = w
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer func() { _ = z.Close() }() // a client that went away needs no end
		out = z
	}
	for ; err == nil; data, err = next() {
		if _, err := out.Write(data); err != nil {
			return
		}
	}
	if !errors.Is(err, io.EOF) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("A node log ended early", "services", q.Services, "err", err)
		panic(http.ErrAbortHandler) // so that the client sees that it is not whole
	}
}

// mostRanges is how many parts of a file one request may ask for: each is read
// on its own, from its beginning.
const mostRanges = 16

// files serves one path as Go's file server does: listings, ranges, redirects.
func files(w http.ResponseWriter, r *http.Request, node Node, name string) {
	if strings.Count(r.Header.Get("Range"), ",") >= mostRanges {
		httperror.Text(w, http.StatusRequestedRangeNotSatisfiable, "too many ranges: ask for 16 at most")
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// A log may hold what somebody outside wrote, and browsers reach this path
	// under the apiserver's own address: nothing of it may run there.
	w.Header().Set("Content-Security-Policy", "sandbox")
	call := r.Clone(ctx)
	call.URL.Path, call.URL.RawPath = "/"+name, ""
	http.FileServer(&fileSystem{ctx: ctx, node: node}).ServeHTTP(w, call)
}
