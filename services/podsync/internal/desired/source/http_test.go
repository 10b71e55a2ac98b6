package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// away is a server that can be told what to answer.
type away struct {
	mu     sync.Mutex
	status int
	body   string
	err    error
	asked  []http.Header
}

func (a *away) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, req.Header.Clone())
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Body: io.NopCloser(strings.NewReader(a.body)), Request: req, Header: http.Header{}}, nil
}

func (a *away) answer(status int, body string, err error) {
	a.mu.Lock()
	a.status, a.body, a.err = status, body, err
	a.mu.Unlock()
	time.Sleep(21 * time.Second)
	synctest.Wait()
}

const address = "http://user:hidden@pods.example/all?key=secret"

func startWeb(t *testing.T, server *away, prepare func(dir string)) *fileBench {
	b := &fileBench{T: t, recorder: newRecorder(), dir: t.TempDir(), poke: make(chan struct{})}
	cfg := Config{NodeName: "Node", StaticPodURL: address, StaticPodURLHeader: map[string][]string{"X-Token": {"a", "b"}}, MaxManifestBytes: 4096}
	if prepare != nil {
		prepare(b.dir)
		cfg.StaticPodPath = b.dir
	}
	s, err := New(cfg, Deps{Notifier: byHand{b.poke}, Health: reporter{b.recorder}, Events: noter{b.recorder}, Mirrors: b.recorder, Transport: server})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx, b); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return b
}

const podList = `{"apiVersion": "v1", "kind": "PodList", "items": [
  {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
  {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c"}]}},
  {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "c", "uid": "given"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}]}`

func TestAURLServesOnePodOrAListOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{status: 200, body: podText("one", "")}
		b := startWeb(t, server, nil)
		b.want("one-node")
		if !slices.Equal(b.ready, []string{HTTP}) || !slices.Equal(server.asked[0]["X-Token"], []string{"a", "b"}) {
			t.Errorf("ready %v, asked with %v", b.ready, server.asked[0])
		}
		for uid, pod := range b.pods {
			if pod.Annotations[podutil.AnnotationSource] != HTTP || pod.Annotations[podutil.AnnotationHash] != string(uid) || len(uid) != 32 || len(pod.Spec.Tolerations) != 0 || pod.Spec.NodeName != "Node" || !podutil.Static(pod) {
				t.Errorf("%+v", pod)
			}
		}
		server.answer(200, podList, nil)
		b.want("a-node", "c-node")
		if got := b.health["static pod URL"]; !strings.Contains(got, "item 1") || !strings.Contains(got, "image: Required") || strings.Contains(got, "hidden") || strings.Contains(got, "secret") {
			t.Errorf("health %q", got)
		}
		if b.pods["given"] == nil {
			t.Error("the UID of the manifest is lost")
		}
		sets := b.sets
		server.answer(200, podList, nil)
		if b.sets != sets {
			t.Error("the same answer set pods again")
		}
		server.answer(200, strings.Replace(podList, `"c"}]`, `"c", "image": "i:2"}]`, 1), nil)
		b.want("a-node", "b-node", "c-node")
		if b.sets != sets+1 || len(b.health) != 0 {
			t.Errorf("%d more set, health %v", b.sets-sets, b.health)
		}
	})
}

func TestAServerThatIsAwayOrAnswersNonsenseKeepsTheLastPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{status: 200, body: podText("one", "")}
		b := startWeb(t, server, nil)
		for _, c := range []struct {
			status int
			body   string
			err    error
			want   string
		}{
			{0, "", errors.New("connection refused"), "ask it: connection refused"},
			{503, "later", nil, "not 200; check the URL and staticPodURLHeader"},
			{200, "kind: [", nil, "neither YAML nor JSON"},
			{200, strings.Repeat("#", 5000), nil, "larger than 4096 bytes"},
			{200, "a\xffb", nil, "not UTF-8"},
			{200, "apiVersion: v1\nkind: Service", nil, "it holds a Service"},
		} {
			server.answer(c.status, c.body, c.err)
			b.want("one-node")
			if got := b.health["static pod URL"]; !strings.Contains(got, c.want) || !strings.Contains(got, "pods.example") || strings.Contains(got, "hidden") || strings.Contains(got, "secret") {
				t.Errorf("health %q, want %q and no secret", got, c.want)
			}
		}
		if events := len(b.events); events != 6 {
			t.Errorf("%d events: %q", events, b.events)
		}
		server.answer(200, podText("one", ""), nil)
		if len(b.health) != 0 || b.sets != 1 {
			t.Errorf("health %v, set %d times", b.health, b.sets)
		}
		server.answer(200, " \n", nil)
		b.want()
		if got := b.health["static pod URL"]; !strings.Contains(got, "empty") {
			t.Errorf("health %q", got)
		}
	})
}

// An element that is no pod may be the one of a pod that runs.
func TestAnElementThatIsNoPodStopsNone(t *testing.T) {
	list := func(items ...string) string {
		return `{"apiVersion": "v1", "kind": "PodList", "items": [` + strings.Join(items, ",") + `]}`
	}
	const spec = `"spec": {"containers": [{"name": "c", "image": "i:1"}]}`
	a, c := `{"metadata": {"name": "a"}, `+spec+`}`, `{"metadata": {"name": "c", "uid": "given"}, `+spec+`}`
	for name, tc := range map[string]struct {
		items  []string
		want   []string
		broken string
	}{
		"a field has another type":   {[]string{a, `{"metadata": {"name": "c"}, "spec": {"containers": "none"}}`}, []string{"a-node", "c-node"}, "item 1"},
		"it has no name":             {[]string{a, `{"metadata": "c", ` + spec + `}`}, []string{"a-node", "c-node"}, "item 1"},
		"it is another's":            {[]string{`{"metadata": {"name": "a"}, "spec": []}`, c}, []string{"a-node", "c-node"}, "item 0"},
		"another's, and this is out": {[]string{`{"metadata": {"name": "a"}, "spec": []}`}, []string{"a-node"}, "spec"},
		"it is null":                 {[]string{a, "null"}, []string{"a-node", "c-node"}, "item 1: it is null"},
		"all are good":               {[]string{a}, []string{"a-node"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &away{status: 200, body: list(a, c)}
				b := startWeb(t, server, nil)
				b.want("a-node", "c-node")
				server.answer(200, list(tc.items...), nil)
				b.want(tc.want...)
				if got := b.health["static pod URL"]; (got == "") != (tc.broken == "") || !strings.Contains(got, tc.broken) {
					t.Errorf("health %q", got)
				}
				server.answer(200, list(a, c), nil)
				b.want("a-node", "c-node")
				if len(b.health) != 0 {
					t.Errorf("after it is corrected: health %v", b.health)
				}
				if removed := slices.Contains(b.log, "remove c-node") || slices.Contains(b.log, "remove a-node"); removed != (len(tc.want) == 1) {
					t.Errorf("the sink was told %q", b.log)
				}
			})
		})
	}
}

func TestTheSourceIsReadyOnlyWhenTheServerHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{err: errors.New("no route")}
		b := startWeb(t, server, nil)
		if len(b.ready) != 0 {
			t.Fatal("ready without an answer: pods of the URL would be ended")
		}
		server.answer(200, podText("one", ""), nil)
		if len(b.ready) != 1 {
			t.Fatal("not ready")
		}
	})
}

func TestAURLThatHasOnlyAnsweredNonsenseIsInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{status: 200, body: "kind: ["}
		b := startWeb(t, server, nil)
		if !slices.Equal(b.doubts, []string{"http true"}) || len(b.ready) != 1 {
			t.Errorf("doubts %q, ready %q", b.doubts, b.ready)
		}
		server.answer(200, " ", nil) // no pods are wanted
		server.answer(200, "kind: [", nil)
		server.answer(200, podList, nil) // one of three is broken
		if want := []string{"http true", "http false", "http true"}; !slices.Equal(b.doubts, want) {
			t.Errorf("doubts %q; want %q", b.doubts, want)
		}
	})
}

func TestANameIsTheFilesWhenTheURLServesItToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{status: 200, body: podText("a", "  hostNetwork: true\n")}
		b := startWeb(t, server, func(dir string) {
			if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(podText("a", "")), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		b.want("a-node")
		if got := b.health["static pod URL"]; !strings.Contains(got, "a.yaml") || !strings.Contains(got, "rename one of them") {
			t.Errorf("health %q", got)
		}
		b.remove("a.yaml")
		b.want("a-node")
		for _, pod := range b.pods {
			if pod.Annotations[podutil.AnnotationSource] != HTTP || len(b.health) != 0 {
				t.Errorf("pod of %s, health %v", pod.Annotations[podutil.AnnotationSource], b.health)
			}
		}
		b.write("a.yaml", podText("a", ""))
		if got := b.health["static pods"]; len(b.pods) != 1 || !strings.Contains(got, "pods.example") {
			t.Errorf("%d pods, health %q", len(b.pods), got)
		}
	})
}

func TestAUIDIsTheFilesWhenTheURLServesItToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &away{status: 200, body: strings.Replace(podText("b", ""), "{name: b", "{name: b, uid: x_y", 1)}
		b := startWeb(t, server, func(dir string) {
			text := strings.Replace(podText("a", ""), "{name: a", "{name: a, uid: x-y", 1)
			if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		})
		b.want("a-node")
		if got := b.health["static pod URL"]; !strings.Contains(got, "a.yaml") || !strings.Contains(got, "metadata.uid") {
			t.Errorf("health %q", got)
		}
		b.remove("a.yaml")
		b.want("b-node")
	})
}

func TestHeadersDoNotFollowARedirectToAnotherServerAndAreNotLogged(t *testing.T) {
	var seen http.Header
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer first.Close()
	defer http.DefaultClient.CloseIdleConnections()
	r := newRecorder()
	s, err := New(Config{NodeName: "n", StaticPodURL: first.URL, StaticPodURLHeader: map[string][]string{"X-Token": {"very-secret"}}}, Deps{Health: reporter{r}, Events: noter{r}, Transport: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	klog.LogToStderr(false)
	defer klog.LogToStderr(true)
	klog.SetOutput(&log)
	w := &web{feed: s.newFeed(r, HTTP, "static pod URL"), shown: redacted(first.URL), client: &http.Client{Transport: s.deps.Transport, CheckRedirect: sameServer}}
	w.read(t.Context())
	klog.Flush()
	if seen != nil {
		t.Errorf("the other server saw %v", seen)
	}
	if got := r.health["static pod URL"]; !strings.Contains(got, "redirects to "+other.URL) {
		t.Errorf("health %q", got)
	}
	if said := log.String() + strings.Join(r.events, ""); strings.Contains(said, "very-secret") {
		t.Errorf("a secret is shown: %s", said)
	}
}
