package trace

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// runtime notes which span each call carries.
type runtime struct {
	grpc.ClientConnInterface
	carried []string
}

func (r *runtime) Invoke(ctx context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	sent, _ := metadata.FromOutgoingContext(ctx)
	r.carried = append(r.carried, strings.Join(sent.Get("traceparent"), " "))
	if strings.HasSuffix(method, "StartContainer") {
		return errors.New("no such program")
	}
	return nil
}

func TestACallOfTheRuntimeHangsOnItsActionAndCarriesItsSpan(t *testing.T) {
	rt := &runtime{}
	conn := cri.Traced(rt, Call)
	spans := trace(t, 1_000_000, func(b *timeline.Book) {
		line := b.Open("uid-1")
		action := line.Begin("start container", "c", "", time.Now())
		within := timeline.Within(t.Context(), action)
		_ = conn.Invoke(within, "/runtime.v1.RuntimeService/CreateContainer", nil, nil)
		_ = conn.Invoke(within, "/runtime.v1.RuntimeService/StartContainer", nil, nil)
		_ = conn.Invoke(t.Context(), "/runtime.v1.RuntimeService/Status", nil, nil)
		action.End(time.Now(), nil)
		if entries := line.Read().Entries; len(entries) != 1 {
			t.Errorf("calls are in the timeline: %+v", entries)
		}
	})
	action, create, start := spans["start container"], spans["runtime.v1.RuntimeService/CreateContainer"], spans["runtime.v1.RuntimeService/StartContainer"]
	if action == nil || create == nil || start == nil || len(spans) != 3 {
		t.Fatalf("%v", spans)
	}
	for _, s := range []*tracev1.Span{create, start} {
		if string(s.GetParentSpanId()) != string(action.GetSpanId()) || string(s.GetTraceId()) != string(action.GetTraceId()) {
			t.Errorf("%s does not hang on its action", s.GetName())
		}
	}
	if start.GetStatus().GetMessage() != "no such program" || create.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR {
		t.Errorf("status %v and %v", create.GetStatus(), start.GetStatus())
	}
	want := []string{
		"00-" + hex.EncodeToString(create.GetTraceId()) + "-" + hex.EncodeToString(create.GetSpanId()) + "-01",
		"00-" + hex.EncodeToString(start.GetTraceId()) + "-" + hex.EncodeToString(start.GetSpanId()) + "-01",
		"",
	}
	if strings.Join(rt.carried, " ") != strings.Join(want, " ") {
		t.Errorf("the runtime got %q, want %q", rt.carried, want)
	}
}

func TestWhatIsDoneOutsideOfActionsHangsOnThePod(t *testing.T) {
	spans := trace(t, 1_000_000, func(b *timeline.Book) {
		line := b.Open("uid-1")
		line.Named("ns", "p")
		line.Begin("make sandbox", "", "", time.Now()).End(time.Now(), nil)
		b.Trace("uid-1", "write status", "").End(time.Now(), errors.New("refused"))
		if b.Trace("of nobody", "write status", "") != nil {
			t.Error("a pod that is not known has a span")
		}
	})
	sandbox, status := spans["make sandbox"], spans["write status"]
	if sandbox == nil || status == nil || string(sandbox.GetParentSpanId()) != string(status.GetParentSpanId()) || string(sandbox.GetTraceId()) != string(status.GetTraceId()) {
		t.Fatalf("%v", spans)
	}
	if status.GetStatus().GetMessage() != "refused" {
		t.Errorf("status %v", status.GetStatus())
	}
}

func TestWithoutACollectorNoCallCostsASpan(t *testing.T) {
	book := timeline.NewBook()
	ctx := timeline.Within(t.Context(), book.Open("u").Begin("start container", "", "", time.Now()))
	if _, s := timeline.Trace(ctx, "call", ""); s != nil || book.Trace("u", "write status", "") != nil {
		t.Error("there is a span that nobody collects")
	}
}
