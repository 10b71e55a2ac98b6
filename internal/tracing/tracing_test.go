package tracing

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// receiver is an OTLP collector; spans are by service and name.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string]*tracev1.Span
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		service := ""
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				r.spans[service+" "+s.GetKind().String()+" "+s.GetName()] = s
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// collected runs work with Providers of two processes and returns what the
// collector got.
func collected(t *testing.T, rate int32, work func(a, b *Provider)) map[string]*tracev1.Span {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{spans: map[string]*tracev1.Span{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(socket) }()
	defer server.Stop()
	var both [2]*Provider
	for i, service := range []string{"a", "b"} {
		if both[i], err = New(t.Context(), Config{Endpoint: socket.Addr().String(), SamplingRatePerMillion: rate, Service: service, NodeName: "n"}); err != nil {
			t.Fatal(err)
		}
		rate = 0 // b follows a
	}
	work(both[0], both[1])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range both {
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return r.spans
}

// call is a unary call of a to b, through their interceptors.
func call(ctx context.Context, a, b *Provider, method string, result error) error {
	server := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		sent, _ := metadata.FromOutgoingContext(ctx)
		_, err := b.Server()(metadata.NewIncomingContext(context.Background(), sent), nil, &grpc.UnaryServerInfo{FullMethod: method},
			func(context.Context, any) (any, error) { return nil, result })
		return err
	}
	return a.Client()(ctx, method, nil, nil, nil, server)
}

func TestATraceGoesOnInTheNextProcess(t *testing.T) {
	failed := errors.New("no")
	spans := collected(t, 1_000_000, func(a, b *Provider) {
		apiserver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Traceparent") == "" {
				t.Error("the request carries no trace")
			}
		}))
		defer apiserver.Close()
		handler := a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := call(r.Context(), a, b, "/polylet.x/Do", failed); !errors.Is(err, failed) {
				t.Errorf("the call gave %v", err)
			}
			if err := call(r.Context(), a, b, "/grpc.health.v1.Health/Check", nil); err != nil {
				t.Error(err)
			}
			req, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, apiserver.URL+"/api", http.NoBody)
			resp, err := a.Transport(http.DefaultTransport).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/pods", http.NoBody))
	})
	parents := map[string]string{
		"polylet-a SPAN_KIND_SERVER HTTP GET":     "",
		"polylet-a SPAN_KIND_CLIENT polylet.x/Do": "polylet-a SPAN_KIND_SERVER HTTP GET",
		"polylet-b SPAN_KIND_SERVER polylet.x/Do": "polylet-a SPAN_KIND_CLIENT polylet.x/Do",
		"polylet-a SPAN_KIND_CLIENT HTTP GET":     "polylet-a SPAN_KIND_SERVER HTTP GET",
	}
	if len(spans) != len(parents) {
		t.Errorf("spans %v, want %v", spans, parents)
	}
	root := spans["polylet-a SPAN_KIND_SERVER HTTP GET"]
	for name, parent := range parents {
		s := spans[name]
		if s == nil {
			t.Fatalf("no span %q of %v", name, spans)
		}
		if string(s.GetTraceId()) != string(root.GetTraceId()) || string(s.GetParentSpanId()) != string(spans[parent].GetSpanId()) {
			t.Errorf("%q is not below %q", name, parent)
		}
	}
	if got := spans["polylet-b SPAN_KIND_SERVER polylet.x/Do"].GetStatus().GetCode(); got != tracev1.Status_STATUS_CODE_ERROR {
		t.Errorf("the call that failed has status %v", got)
	}
}

func TestNoTraceIsSentAtRateZero(t *testing.T) {
	if spans := collected(t, 0, func(a, b *Provider) { _ = call(t.Context(), a, b, "/polylet.x/Do", nil) }); len(spans) != 0 {
		t.Errorf("spans %v", spans)
	}
}

func TestWithoutTracingEverythingGoesThrough(t *testing.T) {
	var none *Provider
	if err := call(t.Context(), none, none, "/polylet.x/Do", nil); err != nil {
		t.Error(err)
	}
	w := httptest.NewRecorder()
	none.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if w.Code != http.StatusNotFound || none.Transport(http.DefaultTransport) != http.DefaultTransport {
		t.Errorf("code %d", w.Code)
	}
	_, span := none.Tracer().Start(t.Context(), "x")
	span.End()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := none.Run(ctx); err != nil {
		t.Error(err)
	}
}
