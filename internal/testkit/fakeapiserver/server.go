package fakeapiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

// Server is the fake. Its methods may be called from any goroutine, but not from inside
// OnWrite.
type Server struct {
	cfg    Config
	base   context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup // handlers in process

	adminOnce   sync.Once
	clientOnce  sync.Once
	adminClient kubernetes.Interface
	client      kubernetes.Interface

	mu        sync.Mutex
	version   int64
	tables    map[schema.GroupVersionResource]*table
	draws     map[string]int
	tokens    map[string]issuedToken
	writes    []Write
	log       []RequestLog
	counts    map[string]int // by request key
	calls     map[string]int // "patch pods/status"
	partition Partition
	healed    chan struct{} // closed while there is no partition
	listeners []*http.Server
}

// New returns a server with no objects. Inside a synctest bubble, call it inside the
// bubble. Close ends it.
func New(cfg Config) *Server {
	cfg.applyDefaults()
	s := &Server{
		cfg: cfg, version: 1, tables: map[schema.GroupVersionResource]*table{}, draws: map[string]int{},
		tokens: map[string]issuedToken{}, counts: map[string]int{}, calls: map[string]int{}, healed: make(chan struct{}),
	}
	close(s.healed)
	s.base, s.cancel = context.WithCancel(context.Background())
	for gvr, r := range resources() {
		if slices.Contains(cfg.Without, gvr.Resource) {
			continue
		}
		s.tables[gvr] = &table{res: r, objects: map[string]*entry{}, watchers: map[*watcher]struct{}{}}
	}
	return s
}

// Close ends every request and watch and returns when their goroutines have ended. The
// objects can still be looked at.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel()
	listeners := s.listeners
	s.listeners = nil
	s.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	s.done.Wait()
}

// Listen serves plain HTTP on a free loopback port until Close, and returns the URL.
// Not for use in a synctest bubble: real I/O stops virtual time.
func (s *Server) Listen() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for the fake apiserver: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.mu.Lock()
	s.listeners = append(s.listeners, server)
	s.mu.Unlock()
	s.done.Go(func() { _ = server.Serve(l) })
	return "http://" + l.Addr().String(), nil
}

type adminKey struct{}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	ctx, cancel := context.WithCancel(hr.Context())
	defer cancel()
	defer context.AfterFunc(s.base, cancel)()
	if s.serveMeta(w, hr) {
		return
	}
	q, err := s.parse(hr)
	if err != nil {
		writeError(w, err)
		return
	}
	began := time.Now()
	q.admin = hr.Context().Value(adminKey{}) != nil
	s.enter(q)
	rec := &recorder{ResponseWriter: w}
	defer func() {
		s.mu.Lock()
		s.log = append(s.log, RequestLog{Request: q.Request, At: began, Took: time.Since(began), Status: rec.status, Admin: q.admin})
		s.mu.Unlock()
	}()
	var f Fault
	if !q.admin {
		s.gate(ctx)
		if s.cfg.Faults != nil {
			f = s.cfg.Faults(q.Request)
		}
	}
	s.answer(ctx, rec, q, f)
}

// answer applies the fault around the request itself.
func (s *Server) answer(ctx context.Context, w *recorder, q *request, f Fault) {
	sleep(ctx, f.Delay)
	faulty := f.Hang || f.Drop || f.Status != 0
	if faulty && !f.After {
		fail(ctx, w, q, f)
		return
	}
	if f.Nonsense != nil {
		f.Nonsense.write(w)
		return
	}
	if q.Verb == "watch" {
		s.serveWatch(ctx, w, q, f)
		return
	}
	code, body, err := s.do(q)
	if f.After {
		f.Drop = f.Drop || !faulty
		fail(ctx, w, q, f)
		return
	}
	if !q.admin {
		s.gate(ctx)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	write(w, code, body)
}

func fail(ctx context.Context, w http.ResponseWriter, q *request, f Fault) {
	if f.Hang {
		<-ctx.Done()
	}
	if f.Hang || f.Drop {
		panic(http.ErrAbortHandler)
	}
	gr := schema.GroupResource{Group: q.Group, Resource: q.Resource}
	retry := int(f.RetryAfter.Seconds())
	if f.Status == http.StatusGone {
		writeError(w, apierrors.NewResourceExpired("fault injected: the resource version is gone"))
		return
	}
	writeError(w, apierrors.NewGenericServerResponse(f.Status, strings.ToUpper(q.Verb), gr, q.Name, "fault injected", retry, false))
}

// enter counts the request and tells it its number.
func (s *Server) enter(q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.N = s.counts[q.key()]
	s.counts[q.key()]++
	name := q.Resource
	if q.Subresource != "" {
		name += "/" + q.Subresource
	}
	s.calls[q.Verb+" "+name]++
}

// sleep lets virtual time pass. When the request ends meanwhile, so does the handler.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	}
}

// recorder keeps the status for the log.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(code int) {
	r.status = code
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) flush() {
	if f, ok := r.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

func writeError(w http.ResponseWriter, err error) {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	st := api.Status()
	st.Kind, st.APIVersion = "Status", "v1"
	if d := st.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(d.RetryAfterSeconds))
	}
	write(w, int(st.Code), st)
}
