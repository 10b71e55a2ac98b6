package document

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func do(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

func raw(t *testing.T, name string, phase v1.PodPhase) []byte {
	t.Helper()
	pod := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "u"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "<&>"}}},
		Status:     v1.PodStatus{Phase: phase},
	}
	out, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPodsAreAPodList(t *testing.T) {
	pods := [][]byte{raw(t, "a", v1.PodRunning), raw(t, "b", v1.PodPending)}
	var list PodList
	write := func() string {
		t.Helper()
		var out strings.Builder
		if n, err := list.Write(&out, pods, Version{}); err != nil || n != int64(out.Len()) {
			t.Fatalf("wrote %d: %v", n, err)
		}
		return out.String()
	}
	for range 2 { // the second time from what is kept
		body := write()
		var got v1.PodList
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		if got.Kind != "PodList" || got.APIVersion != "v1" || len(got.Items) != 2 || got.Items[1].Status.Phase != v1.PodPending ||
			got.Items[0].Spec.Containers[0].Image != "<&>" {
			t.Error(body)
		}
	}
	pods[1] = raw(t, "b", v1.PodSucceeded)
	if body := write(); !strings.Contains(body, `"Succeeded"`) {
		t.Errorf("a changed pod is shown as it was: %s", body)
	}
	pods = nil
	if body := write(); body != `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}` {
		t.Errorf("no pods: %s", body)
	}
	if len(list.known) != 0 {
		t.Errorf("%d pods are kept that are gone", len(list.known))
	}
}

func TestAPodListKeepsABoundedPartForTheNext(t *testing.T) {
	var pods [][]byte
	for i := range 30 {
		pods = append(pods, raw(t, fmt.Sprintf("%d-%s", i, strings.Repeat("x", 100<<10)), v1.PodRunning))
	}
	var list PodList
	if _, err := list.Write(io.Discard, pods, Version{}); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, item := range list.known {
		kept += len(item)
	}
	if kept == 0 || kept > keptBytes {
		t.Errorf("%d bytes are kept, at most %d may be", kept, keptBytes)
	}
}

func TestAPodListTellsWhetherAnythingIsWritten(t *testing.T) {
	good, bad := raw(t, "a", v1.PodRunning), []byte{0xff}
	for _, c := range []struct {
		pods  [][]byte
		began bool
	}{{[][]byte{bad, good}, false}, {[][]byte{good, bad}, true}} {
		var out strings.Builder
		n, err := new(PodList).Write(&out, c.pods, Version{})
		if err == nil || (n > 0) != c.began || n != int64(out.Len()) {
			t.Errorf("%d bytes, error %v, began %v", n, err, c.began)
		}
	}
}

func TestAListIsKeptForItsVersionAsLongAsAllOfItIsKnown(t *testing.T) {
	var list PodList
	if list.Kept() != nil {
		t.Error("a list is kept before there is one")
	}
	pods := [][]byte{raw(t, "a", v1.PodRunning), raw(t, "b", v1.PodPending)}
	for _, of := range [][][]byte{pods, nil} {
		var first, again strings.Builder
		if _, err := list.Write(&first, of, Version{Epoch: 7, Revision: 3}); err != nil {
			t.Fatal(err)
		}
		kept := list.Kept()
		if kept == nil || kept.Version != (Version{Epoch: 7, Revision: 3}) {
			t.Fatalf("of %d pods %+v is kept", len(of), kept)
		}
		if n, err := kept.Write(&again); err != nil || n != int64(again.Len()) || again.String() != first.String() {
			t.Errorf("%s is written as %s, %v", first.String(), again.String(), err)
		}
	}
	if _, err := list.Write(io.Discard, pods, Version{}); err != nil || list.Kept() != nil {
		t.Errorf("%v; a list without a version is kept: %v", err, list.Kept())
	}
	large := [][]byte{raw(t, strings.Repeat("x", keptBytes), v1.PodRunning)}
	if _, err := list.Write(io.Discard, large, Version{Epoch: 7, Revision: 4}); err != nil || list.Kept() != nil {
		t.Errorf("%v; a list that is not known whole is kept", err)
	}
}

func TestConfigzFallsBackToItsOwnConfiguration(t *testing.T) {
	own := func() []byte { return []byte(`{"own":true}`) }
	for config, want := range map[string]string{
		`{"effective":true}`: `{"kubeletconfig":{"effective":true}}`,
		"":                   `{"kubeletconfig":{"own":true}}`,
		"{}":                 `{"kubeletconfig":{"own":true}}`,
	} {
		if got := Configz([]byte(config), own); string(got) != want {
			t.Errorf("%q: %s, want %s", config, got, want)
		}
	}
}

func TestHealthzNamesWhatFailedAndNotWhy(t *testing.T) {
	sick := errors.New("secret reason")
	for _, c := range []struct {
		target string
		err    error
		status int
		body   string
	}{
		{"/healthz", nil, 200, "ok"},
		{"/healthz?verbose", nil, 200, "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n"},
		{"/healthz", sick, 500, "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"},
		{"/healthz?exclude=syncloop", sick, 200, "ok"},
		{"/healthz?exclude=syncloop&verbose", sick, 200, "[+]ping ok\n[+]syncloop excluded: ok\nhealthz check passed\n"},
		{"/healthz?exclude=nothing&verbose", nil, 200, "[+]ping ok\n[+]syncloop ok\nwarn: some health checks cannot be excluded: no matches for \"nothing\"\nhealthz check passed\n"},
	} {
		check := Check{Name: "syncloop", Run: func(context.Context) error { return c.err }}
		if w := do(Healthz(nobody{}, Ping(), check), http.MethodGet, c.target); w.Code != c.status || w.Body.String() != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.target, w.Code, w.Body, c.status, c.body)
		}
	}
	if w := do(HealthzOne(Check{Name: "x", Run: func(context.Context) error { return sick }}), http.MethodGet, "/"); w.Code != 500 || !strings.HasPrefix(w.Body.String(), "internal server error: ") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// nobody takes results.
type nobody struct{}

func (nobody) ObserveCheck(string, bool) {}

func TestAFloodOfHealthChecksIsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, sick := 0, errors.New("away")
		h := HealthzOne(Shared(Check{Name: "stats", Run: func(context.Context) error {
			calls++
			time.Sleep(time.Second)
			return sick
		}}))
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				if w := do(h, http.MethodGet, "/healthz/stats"); w.Code != 500 {
					t.Errorf("%d", w.Code)
				}
			})
		}
		group.Wait()
		sick = nil
		if w := do(h, http.MethodGet, "/healthz/stats"); w.Code != 200 || calls != 2 {
			t.Errorf("%d after %d calls", w.Code, calls)
		}
	})
}

func TestACheckThatFailsIsLoggedOnceHoweverOftenItIsAskedFor(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	sick := errors.New("it hangs")
	since := 0
	h := Healthz(nobody{}, Check{Name: "stats", Run: func(context.Context) error {
		if since++; sick == nil {
			return nil
		}
		return fmt.Errorf("%w, since %d s", sick, since)
	}})
	ask := func(times int) {
		for range times {
			r := httptest.NewRequestWithContext(logr.NewContext(t.Context(), log), http.MethodGet, "/healthz", nil)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	ask(100)
	sick = nil
	ask(100)
	if len(lines) != 2 || !strings.Contains(lines[0], "it hangs") || !strings.Contains(lines[1], "passes again") {
		t.Errorf("%d lines are logged: %.500q", len(lines), lines)
	}
}
