package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	v1 "k8s.io/api/core/v1"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// conn answers calls as a process would; what it saw stays.
type conn struct {
	answer   func(request, reply any) error
	metadata metadata.MD
	deadline bool
}

func (c *conn) Invoke(ctx context.Context, _ string, request, reply any, _ ...grpc.CallOption) error {
	c.metadata, _ = metadata.FromOutgoingContext(ctx)
	_, c.deadline = ctx.Deadline()
	return c.answer(request, reply)
}

func (c *conn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no document is a stream")
}

func documents(t *testing.T, c *conn) *Documents {
	t.Helper()
	d, err := New(Config{Podsync: c, Stats: c, Own: func() []byte { return []byte(`{"own":true}`) }})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func do(h http.Handler, method, target string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, body))
	return w
}

func rawPod(t *testing.T, name string) []byte {
	t.Helper()
	pod := v1.Pod{}
	pod.Name = name
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAnUnchangedPodListIsWrittenFromWhatIsKept(t *testing.T) {
	pods, revision, epoch := [][]byte{rawPod(t, "a")}, uint64(5), uint64(9)
	sent := 0
	c := &conn{answer: func(request, reply any) error {
		req, res := request.(*podsyncv1.ListDesiredPodsRequest), reply.(*podsyncv1.ListDesiredPodsResponse) //nolint:forcetypeassert // a test fails
		res.Epoch, res.Revision = epoch, revision
		if epoch != 0 && req.GetKnownEpoch() == epoch && req.GetKnownRevision() == revision {
			res.Unchanged = true
			return nil
		}
		sent++
		res.Pods = pods
		return nil
	}}
	d := documents(t, c)
	path := "/pods"
	ask := func(want string, wantSent int) {
		t.Helper()
		// What a client says it knows is none of podsync's business.
		w := do(d, http.MethodGet, path+"?known_epoch=9&known_revision=6", nil)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"name":"`+want+`"`) || sent != wantSent {
			t.Errorf("%d %s, pods were sent %d times; want %s and %d", w.Code, w.Body, sent, want, wantSent)
		}
	}
	ask("a", 1)
	ask("a", 1)
	pods, revision = [][]byte{rawPod(t, "b")}, 6
	ask("b", 2)
	path = "/pods/"
	ask("b", 2)
	epoch = 10
	ask("b", 3)
	// A process of the release before counts nothing.
	pods, epoch, revision = [][]byte{rawPod(t, "c")}, 0, 0
	ask("c", 4)
	ask("c", 5)
}

func TestAListThatIsUnchangedThoughNoneIsKnownIsAnError(t *testing.T) {
	d := documents(t, &conn{answer: func(_, reply any) error {
		reply.(*podsyncv1.ListDesiredPodsResponse).Unchanged = true //nolint:forcetypeassert // a test fails
		return nil
	}})
	if w := do(d, http.MethodGet, "/pods", nil); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "nothing has changed") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestDocumentsAreTheFieldsThatTheMappingNames(t *testing.T) {
	c := &conn{answer: func(_, reply any) error {
		switch res := reply.(type) {
		case *podsyncv1.ListDesiredPodsResponse:
			res.Pods = [][]byte{rawPod(t, "a"), rawPod(t, "b")}
		case *podsyncv1.ListRuntimePodsResponse:
			res.Pods = nil
		case *statsv1.GetSummaryResponse:
			res.SummaryJson = []byte(`{"node":{}}`)
		case *statsv1.GetMachineResponse:
			res.MachineInfoJson = []byte(`{"num_cores":2}`)
		case *commonv1.GetConfigResponse:
			res.KubeletConfigurationJson = []byte(`{"effective":true}`)
		}
		return nil
	}}
	d := documents(t, c)
	for _, q := range []struct{ method, target, body string }{
		{"GET", "/runningpods/", `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`},
		{"GET", "/stats/summary", `{"node":{}}`},
		{"POST", "/stats/summary", `{"node":{}}`},
		{"GET", "/spec", `{"num_cores":2}`},
		{"PUT", "/spec", `{"num_cores":2}`},
		{"GET", "/configz", `{"kubeletconfig":{"effective":true}}`},
		{"POST", "/configz", `{"kubeletconfig":{"effective":true}}`},
		{"DELETE", "/configz?unknown=%zz", `{"kubeletconfig":{"effective":true}}`},
	} {
		w := do(d, q.method, q.target, nil)
		if w.Code != 200 || w.Body.String() != q.body || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %v %q, want %q", q.method, q.target, w.Code, w.Header(), w.Body, q.body)
		}
	}
	var list v1.PodList
	w := do(d, "GET", "/pods?unknown=1", nil)
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || list.Kind != "PodList" || len(list.Items) != 2 || list.Items[1].Name != "b" {
		t.Errorf("%v in %s", err, w.Body)
	}
	if !c.deadline {
		t.Error("a call has no deadline")
	}
}

func TestSummaryTakesExactlyOneTrue(t *testing.T) {
	d := documents(t, &conn{answer: func(request, reply any) error {
		reply.(*statsv1.GetSummaryResponse).SummaryJson = fmt.Append(nil, request.(*statsv1.GetSummaryRequest).GetOnlyCpuAndMemory())
		return nil
	}})
	for query, want := range map[string]string{
		"": "false", "?only_cpu_and_memory=true": "true", "?only_cpu_and_memory=1": "false", "?only_cpu_and_memory=nonsense": "false",
		"?only_cpu_and_memory=true&only_cpu_and_memory=true": "false", "?onlyCpuAndMemory=true": "false",
		"?only_cpu_and_memory=true&other=1": "true",
	} {
		for _, method := range []string{"GET", "POST"} {
			for _, path := range []string{"/stats/summary", "/stats/summary/"} {
				if w := do(d, method, path+query, nil); w.Code != 200 || w.Body.String() != want {
					t.Errorf("%s %s%s: %d %s, want %s", method, path, query, w.Code, w.Body, want)
				}
			}
		}
	}
	r := httptest.NewRequest("POST", "/stats/summary", strings.NewReader("only_cpu_and_memory=true"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	if d.ServeHTTP(w, r); w.Body.String() != "true" {
		t.Errorf("as a form: %d %s", w.Code, w.Body)
	}
	if w := do(d, "GET", "/stats/summary?only_cpu_and_memory=%zz", nil); w.Code != 400 || !strings.HasPrefix(w.Body.String(), "Unable to read the query") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestNothingOfARequestsHeadersReachesAProcess(t *testing.T) {
	c := &conn{answer: func(_, _ any) error { return nil }}
	d := documents(t, c)
	for _, method := range []string{"GET", "POST"} {
		r := httptest.NewRequest(method, "http://evil/stats/summary", strings.NewReader("x"))
		for name, value := range map[string]string{
			"Authorization": "Bearer secret", "Cookie": "a=b", "Grpc-Metadata-Polylet-Protocol": "99", "Grpc-Metadata-X-Bin": "!",
			"Grpc-Timeout": "1n", "X-Forwarded-For": "10.0.0.1", "X-Forwarded-Host": "evil", "Host": "evil",
			"X-Http-Method-Override": "DELETE", "Content-Type": "application/x-www-form-urlencoded", "Te": "trailers", "User-Agent": "x",
		} {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		if d.ServeHTTP(w, r); w.Code != 200 || len(c.metadata) != 0 || w.Header().Get("Trailer") != "" {
			t.Errorf("%s: %d %q with metadata %v", method, w.Code, w.Body, c.metadata)
		}
	}
}

func TestErrorsHaveTheStatusesOfTheTable(t *testing.T) {
	for _, q := range []struct {
		target string
		err    error
		status int
		body   string // contained
	}{
		{"/pods", rpcerr.ErrUnavailable, 503, "polylet's podsync process does not answer"},
		{"/runningpods/", errors.New("boom"), 500, "boom"},
		{"/spec", rpcerr.ErrUnavailable, 503, "polylet's stats process does not answer"},
		{"/spec", context.DeadlineExceeded, 504, "deadline"},
		{"/stats/summary", fmt.Errorf("%w: container c", rpcerr.ErrNotFound), 404, "container c"},
		{"/stats/summary", errors.New("boom"), 500, "Internal Error: boom"},
		{"/stats/summary", rpcerr.ErrUnavailable, 503, "polylet's stats process does not answer"},
		{"/configz", rpcerr.ErrUnavailable, 200, `{"kubeletconfig":{"own":true}}`},
	} {
		d := documents(t, &conn{answer: func(_, _ any) error { return rpcerr.FromStatus(rpcerr.ToStatus(q.err).Err()) }})
		if w := do(d, "GET", q.target, nil); w.Code != q.status || !strings.Contains(w.Body.String(), q.body) {
			t.Errorf("%s with %v: %d %q, want %d with %q", q.target, q.err, w.Code, w.Body, q.status, q.body)
		}
	}
}

func TestAPodThatCannotBeReadIsAFaultAndNeverAShortList(t *testing.T) {
	bad := []byte{0xff}
	for name, pods := range map[string][][]byte{"first": {bad, rawPod(t, "a")}, "later": {rawPod(t, "a"), bad}} {
		d := documents(t, &conn{answer: func(_, reply any) error {
			reply.(*podsyncv1.ListDesiredPodsResponse).Pods = pods
			return nil
		}})
		server := httptest.NewServer(d)
		res, err := http.Get(server.URL + "/pods")
		var body []byte
		if err == nil {
			body, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		server.Close()
		if fault := err == nil && res.StatusCode == 500 && strings.HasPrefix(string(body), "pod 1 of 2 that podsync sent: "); name == "first" && !fault || name == "later" && err == nil {
			t.Errorf("%s pod bad: %v, body %q", name, err, body)
		}
	}
}
