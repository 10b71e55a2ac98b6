package trace

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// receiver is an OTLP collector.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string]*tracev1.Span
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				r.spans[s.GetName()] = s
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// trace runs work with a Tracer of this rate and returns what the collector got.
func trace(t *testing.T, rate int32, work func(*timeline.Book)) map[string]*tracev1.Span {
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
	tracer, err := New(t.Context(), Config{Endpoint: socket.Addr().String(), SamplingRatePerMillion: rate, NodeName: "n"})
	if err != nil {
		t.Fatal(err)
	}
	book := timeline.NewBook()
	book.Tracer = tracer
	work(book)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracer.Run(ctx); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans
}

func TestAPodsStepsAreOneTraceWithTheirTimesAndErrors(t *testing.T) {
	began := time.Unix(1000, 0)
	spans := trace(t, 1_000_000, func(b *timeline.Book) {
		line := b.Open("uid-1")
		line.Named("ns", "p")
		action := line.Begin("set up volumes", "", "", began)
		end := timeline.Start(timeline.Within(t.Context(), action), timeline.Volume, "data", "nfs")
		end(errors.New("no route to host"))
		action.End(began.Add(3*time.Second), nil)
		line.Begin("pull image", "img:1", "", began).End(began.Add(time.Second), nil)
		b.Open("uid-2").Begin("of another pod", "", "", began).End(began, nil)
	})
	volumes, volume, pull, other := spans["set up volumes"], spans[timeline.Volume], spans["pull image"], spans["of another pod"]
	if volumes == nil || volume == nil || pull == nil || other == nil {
		t.Fatalf("%v", spans)
	}
	if string(volumes.GetTraceId()) != string(pull.GetTraceId()) || string(volumes.GetTraceId()) != string(volume.GetTraceId()) || string(volumes.GetTraceId()) == string(other.GetTraceId()) {
		t.Error("a trace is not a pod's")
	}
	if string(volume.GetParentSpanId()) != string(volumes.GetSpanId()) || string(pull.GetParentSpanId()) != string(volumes.GetParentSpanId()) {
		t.Error("a step within an action does not hang on it")
	}
	if took := volumes.GetEndTimeUnixNano() - volumes.GetStartTimeUnixNano(); took != uint64(3*time.Second) || volumes.GetStartTimeUnixNano() != uint64(began.UnixNano()) {
		t.Errorf("it took %d", took)
	}
	if volume.GetStatus().GetCode() != tracev1.Status_STATUS_CODE_ERROR || volume.GetStatus().GetMessage() != "no route to host" || pull.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR {
		t.Errorf("status %v and %v", volume.GetStatus(), pull.GetStatus())
	}
	attributes := map[string]string{}
	for _, a := range pull.GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if attributes["k8s.pod.name"] != "p" || attributes["k8s.pod.uid"] != "uid-1" || attributes["polylet.object"] != "img:1" {
		t.Errorf("%v", attributes)
	}
}

// One span that cannot be encoded has its whole batch thrown away, other pods' too.
func TestAPodWhoseWordsAreNoTextLosesNoSpanOfOthers(t *testing.T) {
	for _, word := range []string{"img\xff", strings.Repeat("ü", 1<<20)} {
		spans := trace(t, 1_000_000, func(b *timeline.Book) {
			line := b.Open("uid-1")
			line.Named(word, word)
			line.Begin("pull image", word, word, time.Now()).End(time.Now(), errors.New(word))
			b.Trace("uid-1", word, word).End(time.Now(), nil)
			b.Open("uid-2").Begin("make sandbox", "", "", time.Now()).End(time.Now(), nil)
		})
		pull := spans["pull image"]
		if len(spans) != 3 || spans["make sandbox"] == nil || pull == nil {
			t.Fatalf("%d spans are collected", len(spans))
		}
		texts := []string{pull.GetStatus().GetMessage()}
		for _, a := range pull.GetAttributes() {
			texts = append(texts, a.GetValue().GetStringValue())
		}
		for _, text := range texts {
			if !utf8.ValidString(text) || text == "" || len(text) > 1<<10 {
				t.Errorf("a text of %d bytes: %.40q", len(text), text)
			}
		}
	}
}

func TestWithoutSamplingNothingIsSent(t *testing.T) {
	spans := trace(t, 0, func(b *timeline.Book) {
		b.Open("u").Begin("pull image", "i", "", time.Now()).End(time.Now(), nil)
	})
	if len(spans) != 0 {
		t.Errorf("%v", spans)
	}
}

func TestACollectorThatIsAwayHoldsNothingUp(t *testing.T) {
	tracer, err := New(t.Context(), Config{Endpoint: "127.0.0.1:1", SamplingRatePerMillion: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	book := timeline.NewBook()
	book.Tracer = tracer
	began := time.Now()
	for range 10_000 { // more than any queue holds: what waited here would wait for ever
		book.Open("u").Begin("w", "", "", began).End(began, nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracer.Run(ctx); err != nil {
		t.Error(err)
	}
}
