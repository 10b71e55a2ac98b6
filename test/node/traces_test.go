package node_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// collected is an OTLP collector that keeps what it gets.
type collected struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracev1.Span
}

func (c *collected) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// lives maps each span that a pod's life must have to the one it hangs on; ""
// is the pod itself.
var lives = map[string]string{
	"pull image":                                "",
	"runtime.v1.ImageService/PullImage":         "pull image",
	"set up volumes":                            "",
	"set up volume":                             "set up volumes",
	"make sandbox":                              "",
	"runtime.v1.RuntimeService/RunPodSandbox":   "make sandbox",
	"start container":                           "",
	"runtime.v1.RuntimeService/CreateContainer": "start container",
	"runtime.v1.RuntimeService/StartContainer":  "start container",
	"postStart hook":                            "start container",
	"write status":                              "",
	"begin stop":                                "",
	"preStop hook":                              "begin stop",
	"kill container":                            "",
	"runtime.v1.RuntimeService/StopContainer":   "kill container",
	"stop sandbox":                              "",
	"tear down volumes":                         "",
	"delete object":                             "",
}

func TestAPodsLifeIsOneTraceOfAllItsSteps(t *testing.T) {
	if onKubelet() {
		t.Skip("the kubelet's spans have names of their own")
	}
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := &collected{}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, got)
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(server.Stop)
	h := build(t, plan{overrides: map[string]any{
		"tracing": map[string]any{"endpoint": socket.Addr().String(), "samplingRatePerMillion": 1_000_000},
	}})
	pod := app("traced", "sleep")
	sleep := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/testapp", "sleep", "for=100ms"}}}
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: sleep, PreStop: sleep}
	h.create(pod)
	uid := string(h.waitReady("traced", time.Minute).UID)
	h.must(h.cluster.Client.CoreV1().Pods("default").Delete(h.ctx, "traced", metav1.DeleteOptions{}))
	h.eventually(time.Minute, "all steps of the pod are spans of one trace", func() error { return got.judge(uid) })
}

// judge says what is missing or wrong in the trace of the pod with this UID.
func (c *collected) judge(uid string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var mine []*tracev1.Span
	for _, s := range c.spans {
		if value(s, "k8s.pod.uid") == uid {
			mine = append(mine, s)
		}
	}
	var wrong []string
	for _, s := range mine {
		if string(s.GetTraceId()) != string(mine[0].GetTraceId()) || value(s, "k8s.pod.name") != "traced" || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
			wrong = append(wrong, fmt.Sprintf("%s is of another trace, pod or time", s.GetName()))
		}
	}
	for name, parent := range lives {
		if !slices.ContainsFunc(mine, func(s *tracev1.Span) bool {
			return s.GetName() == name && (parent == "" || slices.ContainsFunc(mine, func(p *tracev1.Span) bool {
				return p.GetName() == parent && string(p.GetSpanId()) == string(s.GetParentSpanId())
			}))
		}) {
			wrong = append(wrong, fmt.Sprintf("no %q under %q", name, parent))
		}
	}
	slices.Sort(wrong)
	return boolError(len(wrong) == 0, "%d spans: %s", len(mine), strings.Join(wrong, "; "))
}

// value is a span's attribute.
func value(s *tracev1.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}
