package nodepage_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/testkit/grpctest"
	"github.com/polylet/polylet/services/gateway/internal/nodepage"
	"github.com/polylet/polylet/services/gateway/internal/peer"
)

const secret = "hunter2"

// fakePeers are podsync, probes and stats with one pod; nodestatus is away.
type fakePeers struct {
	podsapi.UnimplementedPodsServer
	podsyncv1.UnimplementedPodSyncServiceServer
	probesv1.UnimplementedProbesServiceServer
	statsv1.UnimplementedStatsServiceServer
	lists atomic.Int32
}

func (f *fakePeers) ListPods(context.Context, *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	f.lists.Add(1)
	raw, err := (&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{"a": secret}},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "c", Image: "img:1", Args: []string{"--password=" + secret}, Env: []v1.EnvVar{{Name: "PASSWORD", Value: secret}},
		}}},
		Status: v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull"}},
		}}},
	}).Marshal()
	return &podsapi.ListPodsResponse{Pods: [][]byte{raw}}, err
}

func waits() []*podsyncv1.Wait {
	return []*podsyncv1.Wait{
		{Kind: "image", Object: "img:1", Reason: "<b>not found</b>", Advice: "push it"},
		{Kind: "probe", Object: "c", Reason: "the readiness probe fails: Get \"http://10.0.0.1/ok?token=" + secret + "\": refused"},
		{Kind: "probe", Object: "c", Reason: "the readiness probe (HTTP GET /ok?token=" + secret + " on port 80) has not succeeded yet"},
		{Kind: "probe", Object: "c", Reason: "the readiness probe (HTTP GET /ok on port 80) has not succeeded yet: " + secret},
	}
}

func (f *fakePeers) ListWaits(context.Context, *podsyncv1.ListWaitsRequest) (*podsyncv1.ListWaitsResponse, error) {
	return &podsyncv1.ListWaitsResponse{Pods: []*podsyncv1.PodWaits{{Pod: &podsyncv1.PodRef{Uid: "u"}, Waits: waits()}}}, nil
}

func (f *fakePeers) ExplainPod(_ context.Context, req *podsyncv1.ExplainPodRequest) (*podsyncv1.ExplainPodResponse, error) {
	return &podsyncv1.ExplainPodResponse{
		Pod: req.GetPod(), Phase: "Pending", Waits: waits(),
		Timeline: []*podsyncv1.TimelineEntry{
			{Time: timestamppb.New(time.Unix(1, 0)), Step: "pull image", Error: "not found", Count: 3},
			{Time: timestamppb.New(time.Unix(2, 0)), Step: "readiness probe fails", Error: secret},
			{Time: timestamppb.New(time.Unix(3, 0)), Step: "probe attempt failed", Detail: secret},
		},
	}, nil
}

func (f *fakePeers) ListProbes(context.Context, *probesv1.ListProbesRequest) (*probesv1.ListProbesResponse, error) {
	return &probesv1.ListProbesResponse{Probes: []*probesv1.ProbeState{
		{Message: "command timed out: \"check " + secret + "\"", Target: &podsyncv1.ProbeTarget{
			Key:     &podsyncv1.ProbeKey{Container: "c", Type: podsyncv1.ProbeType_PROBE_TYPE_LIVENESS},
			Handler: &podsyncv1.ProbeTarget_Exec{Exec: &podsyncv1.ExecHandler{Command: []string{"check", secret}}},
		}},
		{Message: "{\"session\":\"" + secret + "\"}", Target: &podsyncv1.ProbeTarget{
			Key: &podsyncv1.ProbeKey{Container: "c", Type: podsyncv1.ProbeType_PROBE_TYPE_READINESS},
			Handler: &podsyncv1.ProbeTarget_HttpGet{HttpGet: &podsyncv1.HTTPGetHandler{
				Path: "/ok?token=" + secret, Headers: []*podsyncv1.HTTPHeader{{Name: "Authorization", Value: secret}},
			}},
		}},
	}}, nil
}

func (f *fakePeers) GetSummary(context.Context, *statsv1.GetSummaryRequest) (*statsv1.GetSummaryResponse, error) {
	return &statsv1.GetSummaryResponse{SummaryJson: []byte(`{"node":{"cpu":{"usageNanoCores":500000000}},"pods":[{"podRef":{"uid":"u"},"containers":[{"name":"c","memory":{"workingSetBytes":1024}}]}]}`)}, nil
}

// fakeNode knows the node's events and, yet, no Node; and shortages when it is short.
type fakeNode struct {
	nodestatusv1.UnimplementedNodeStatusServiceServer
	short bool
}

func (f fakeNode) ListEvictionDecisions(ctx context.Context, req *nodestatusv1.ListEvictionDecisionsRequest) (*nodestatusv1.ListEvictionDecisionsResponse, error) {
	if !f.short {
		return f.UnimplementedNodeStatusServiceServer.ListEvictionDecisions(ctx, req)
	}
	memory := &nodestatusv1.Shortage{Signal: "memory.available", Threshold: "100Mi", Available: "50Mi", Since: timestamppb.New(time.Unix(5, 0)), Hard: true}
	waits := &nodestatusv1.Shortage{Signal: "pid.available", Since: timestamppb.New(time.Unix(5, 0)), DueTime: timestamppb.New(time.Unix(8, 0))}
	return &nodestatusv1.ListEvictionDecisionsResponse{
		SignalsTime: timestamppb.Now(), BeganTime: timestamppb.New(time.Unix(4, 0)),
		Shortages: []*nodestatusv1.Shortage{memory}, Waits: []*nodestatusv1.Shortage{waits},
		Decisions: []*nodestatusv1.EvictionDecision{
			{Time: timestamppb.New(time.Unix(6, 0)), Shortage: memory, Outcome: "nobody", Why: "<b>no pod</b>"},
			{Time: timestamppb.New(time.Unix(7, 0)), Shortage: memory, Outcome: "evicted", Chosen: "ns/p", ChosenUid: "u", Candidates: []*nodestatusv1.EvictionCandidate{{Pod: "ns/p", Uid: "u", Usage: 9}}},
		},
	}, nil
}

func (fakeNode) ListRecentEvents(context.Context, *nodestatusv1.ListRecentEventsRequest) (*nodestatusv1.ListRecentEventsResponse, error) {
	return &nodestatusv1.ListRecentEventsResponse{Events: []*nodestatusv1.NodeEvent{
		{Time: timestamppb.New(time.Unix(1, 0)), Type: "Normal", Reason: "Starting", Message: "Starting kubelet.", Count: 1},
		{Time: timestamppb.New(time.Unix(3, 0)), Type: "Warning", Reason: "Rebooted", Message: "has been rebooted", Count: 2},
	}}, nil
}

func start(t *testing.T) (*httptest.Server, *fakePeers) {
	t.Helper()
	return startWith(t, fakeNode{})
}

func startWith(t *testing.T, node fakeNode) (*httptest.Server, *fakePeers) {
	t.Helper()
	fake := &fakePeers{}
	peers := grpctest.New(func(s *grpc.Server) {
		podsapi.RegisterPodsServer(s, fake)
		podsyncv1.RegisterPodSyncServiceServer(s, fake)
		probesv1.RegisterProbesServiceServer(s, fake)
		statsv1.RegisterStatsServiceServer(s, fake)
		nodestatusv1.RegisterNodeStatusServiceServer(s, node)
	})
	conn, err := peers.Dial()
	if err != nil {
		t.Fatal(err)
	}
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "container_x 1") })
	server := httptest.NewServer(nodepage.New(nodepage.Config{NodeName: "node-1", Peers: peer.NewPage(conn, conn, conn, conn), Metrics: metrics}))
	t.Cleanup(func() {
		server.Close()
		conn.Close()
		peers.Close()
	})
	return server, fake
}

// get asks and returns the answer with its body.
func get(t *testing.T, s *httptest.Server, path string, edit func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(req)
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestThePageAnswersOnlyWhomAndWhatItMay(t *testing.T) {
	server, _ := start(t)
	for name, c := range map[string]struct {
		path   string
		edit   func(*http.Request)
		status int
	}{
		"the page":                    {"/", nil, 200},
		"localhost":                   {"/api/overview", func(r *http.Request) { r.Host = "localhost:4194" }, 200},
		"the node's name":             {"/", func(r *http.Request) { r.Host = "NODE-1:4194" }, 200},
		"an IPv6 address":             {"/", func(r *http.Request) { r.Host = "[::1]:4194" }, 200},
		"a name that was rebound":     {"/api/overview", func(r *http.Request) { r.Host = "evil.example:4194" }, 421},
		"a name that begins alike":    {"/", func(r *http.Request) { r.Host = "localhost.evil.example" }, 421},
		"a number that is no address": {"/", func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }, 421},
		"POST":                        {"/api/overview", func(r *http.Request) { r.Method = http.MethodPost }, 405},
		"DELETE":                      {"/metrics", func(r *http.Request) { r.Method = http.MethodDelete }, 405},
		"HEAD":                        {"/", func(r *http.Request) { r.Method = http.MethodHead }, 200},
		"another site's script":       {"/api/usage", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"a link on another site": {"/", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
		}, 200},
		"no such path":       {"/api/secrets", nil, 404},
		"files beside it":    {"/static/page.js", nil, 404},
		"cAdvisor's metrics": {"/metrics", nil, 200},
	} {
		res, body := get(t, server, c.path, c.edit)
		if res.StatusCode != c.status {
			t.Errorf("%s: %d %s, want %d", name, res.StatusCode, body, c.status)
		}
		if policy := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: Content-Security-Policy %q", name, policy)
		}
	}
}

func TestAllThatThePageLoadsIsItsOwn(t *testing.T) {
	server, _ := start(t)
	_, html := get(t, server, "/", nil)
	for _, path := range []string{"/page.css", "/page.js", "/pod.js", "/short.js", "/dom.js", "/chart.js", "/words.js"} {
		res, body := get(t, server, path, nil)
		if res.StatusCode != 200 || body == "" {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
		again, _ := get(t, server, path, func(r *http.Request) { r.Header.Set("If-None-Match", res.Header.Get("ETag")) })
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %d", path, again.StatusCode)
		}
		html += strings.ReplaceAll(body, "http://www.w3.org/2000/svg", "")
	}
	for _, foreign := range []string{"https://", "//cdn", "innerHTML", "eval(", "<style", "onclick=\""} {
		if strings.Contains(html, foreign) {
			t.Errorf("%q is in the page", foreign)
		}
	}
}

func TestNoSecretOfAPodIsShown(t *testing.T) {
	server, _ := start(t)
	for path, want := range map[string]string{"/api/overview": `"ErrImagePull"`, "/api/pods/ns/p?uid=u": `"exec check"`} {
		_, body := get(t, server, path, nil)
		if strings.Contains(body, secret) || !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestWhatIsNoProbesIsShownAsItIs(t *testing.T) {
	server, _ := start(t)
	_, body := get(t, server, "/api/pods/ns/p?uid=u", nil)
	for _, want := range []string{
		"not found\\u003c/b\\u003e", `"error":"not found"`, `"the readiness probe fails"`,
		`"the readiness probe (HTTP GET /ok on port 80) has not succeeded yet"`, `"step":"readiness probe fails"`, `"step":"probe attempt failed"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
}

func TestWhatIsAwayIsNamedAndTheRestIsShown(t *testing.T) {
	server, _ := start(t)
	_, body := get(t, server, "/api/overview", nil)
	var o nodepage.Overview
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Problems) != 3 || !strings.HasPrefix(o.Problems[0], "events: ") || !strings.HasPrefix(o.Problems[1], "node: ") || !strings.HasPrefix(o.Problems[2], "what the node is short of: ") {
		t.Errorf("problems: %v", o.Problems)
	}
	if o.Shortages != nil {
		t.Errorf("shortages that nobody told: %+v", o.Shortages)
	}
	if len(o.Pods) != 1 || len(o.Pods[0].Waits) != len(waits()) || o.Pods[0].Waits[0].Advice != "push it" || len(o.Services) != 5 {
		t.Errorf("%+v", o)
	}
	if len(o.Events) != 2 || o.Events[0].Reason != "Rebooted" || o.Events[0].Kind != "Node" || o.Events[0].Name != "node-1" || o.Events[0].Count != 2 || o.Events[1].Reason != "Starting" {
		t.Errorf("events: %+v", o.Events)
	}
	_, body = get(t, server, "/api/usage", nil)
	var u nodepage.Usage
	if err := json.Unmarshal([]byte(body), &u); err != nil || u.Node.CPU != 0.5 || u.Containers["u/c"].Memory != 1024 {
		t.Errorf("%+v %v", u, err)
	}
	_, body = get(t, server, "/api/pods/ns/p", nil)
	var p nodepage.PodPage
	if err := json.Unmarshal([]byte(body), &p); err != nil || len(p.Timeline) != 3 || p.Timeline[0].Count != 3 || len(p.Probes) != 2 {
		t.Errorf("%+v %v", p, err)
	}
}

func TestManyViewersCostAsMuchAsOne(t *testing.T) {
	server, fake := start(t)
	for range 20 {
		get(t, server, "/api/overview", nil)
	}
	if n := fake.lists.Load(); n > 5 {
		t.Errorf("podsync was asked %d times", n)
	}
}

func TestWhatTheNodeIsShortOfIsShownWithTheNewestDecisionFirst(t *testing.T) {
	server, _ := startWith(t, fakeNode{short: true})
	_, body := get(t, server, "/api/overview", nil)
	var o nodepage.Overview
	if err := json.Unmarshal([]byte(body), &o); err != nil || o.Shortages == nil {
		t.Fatal(err, body)
	}
	s := o.Shortages
	if len(s.Short) != 2 || s.Short[0].Available != "50Mi" || s.Short[0].Since.Unix() != 5 || s.Short[0].Due != nil || s.Measured == nil || s.Stale || s.Began.Unix() != 4 {
		t.Errorf("%+v", s)
	}
	if waits := s.Short[1]; waits.Signal != "pid.available" || waits.Due.Unix() != 8 {
		t.Errorf("%+v", waits)
	}
	if len(s.Decisions) != 2 || s.Decisions[0].Outcome != "evicted" || s.Decisions[0].Chosen.Name != "p" || s.Decisions[0].Candidates[0].Usage != 9 || s.Decisions[1].Outcome != "nobody" {
		t.Errorf("%+v", s.Decisions)
	}
	if strings.Contains(body, "<b>") || !strings.Contains(body, "no pod") {
		t.Error(body)
	}
}

func TestThePageHasAPlaceForEachThingThatItsScriptsFill(t *testing.T) {
	server, _ := start(t)
	_, html := get(t, server, "/", nil)
	id := regexp.MustCompile(`byId\('([a-z-]+)'\)`)
	n := 0
	for _, script := range []string{"/page.js", "/short.js"} {
		_, body := get(t, server, script, nil)
		for _, found := range id.FindAllStringSubmatch(body, -1) {
			n++
			if !strings.Contains(html, `id="`+found[1]+`"`) {
				t.Errorf("%s fills %s, which the page has not", script, found[1])
			}
		}
	}
	if n < 30 {
		t.Errorf("%d places were found", n)
	}
}
