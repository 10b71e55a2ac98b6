package nodelog

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
)

func TestWhatCannotBeReadIs400AndWhatIsNotAllowedIs406(t *testing.T) {
	for query, want := range map[string]int{
		"": 0, "unknown=1": 0,
		"query=kubelet": 200, "query=a&query=b&query=c&query=d": 200, "query=/messages": 200, "query=%5Ca%5Cb.log": 200, "query=a/../b.log": 200,
		"query=kubelet&tailLines=0&boot=0&pattern=a|b&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T03:04:05Z": 200,
		"query=": 400, "query=%20": 400, "query=a&tailLines=x": 400, "query=a&tailLines=99999999999": 400, "query=a&boot=x": 400,
		"query=a&sinceTime=yesterday": 400, "query=a&untilTime=1": 400, "query=a&pattern=(": 406,
		"query=a&query=b&query=c&query=d&query=e": 406, "query=/a&query=/b": 406, "query=/a&query=b": 406, "query=/a&tailLines=1": 406,
		"tailLines=1": 406, "pattern=x": 406, "query=/../etc/shadow": 406, "query=..%5C..%5Cetc%5Cshadow": 406, "query=/a%00": 406,
		"query=a;b": 406, "query=..": 406, "query=a&tailLines=-1": 406, "query=a&tailLines=100001": 406, "query=a&boot=1": 406,
		"query=a&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T03:04:04Z": 406, "query=" + strings.Repeat("a", 257): 406,
	} {
		values, err := url.ParseQuery(strings.ReplaceAll(query, ";", "%3B"))
		if err != nil {
			t.Fatal(err)
		}
		q, refused := parse(values)
		got := 0
		switch {
		case refused != nil:
			got = refused.status
		case q != nil:
			got = 200
		}
		if got != want {
			t.Errorf("%q: %d (%v), want %d", query, got, refused, want)
		}
	}
}

// fakeNode has one file and notes what it is asked for.
type fakeNode struct {
	text  string
	reads []int64
	query *Query
	err   error
}

func (n *fakeNode) Stat(_ context.Context, path string) (Entry, []Entry, error) {
	file := Entry{Name: "a.log", Size: int64(len(n.text)), Modified: time.Unix(1e9, 0)}
	switch path {
	case "", "dir":
		return Entry{Name: path, Directory: true}, []Entry{file, {Name: "dir", Directory: true}, {Name: "<b>"}}, n.err
	case "a.log":
		return file, nil, n.err
	}
	return Entry{}, nil, fmt.Errorf("%w: %s", rpcerr.ErrNotFound, path)
}

func (n *fakeNode) pieces(text string) func() ([]byte, error) {
	return func() ([]byte, error) {
		if text == "" {
			return nil, io.EOF
		}
		size := min(3, len(text))
		data := []byte(text[:size])
		text = text[size:]
		return data, nil
	}
}

func (n *fakeNode) Read(_ context.Context, _ string, offset int64) (func() ([]byte, error), error) {
	n.reads = append(n.reads, offset)
	return n.pieces(n.text[offset:] + "appended meanwhile"), nil
}

func (n *fakeNode) Query(_ context.Context, q *Query) (func() ([]byte, error), error) {
	n.query = q
	if n.err != nil {
		return func() ([]byte, error) { return nil, n.err }, nil
	}
	return n.pieces("log of " + strings.Join(q.Services, ",")), nil
}

func do(n Node, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler(n, true).ServeHTTP(w, r)
	return w
}

func TestServicesLogsAreTextAndCompressedForWhoTakesGzipOnly(t *testing.T) {
	n := &fakeNode{}
	w := do(n, "/logs/?query=kubelet&tailLines=5", "Accept-Encoding", "gzip, deflate")
	if w.Code != 200 || w.Body.String() != "log of kubelet" || w.Header().Get("Content-Type") != "text/plain;charset=UTF-8" || *n.query.TailLines != 5 {
		t.Errorf("%d %v %q, asked for %+v", w.Code, w.Header(), w.Body, n.query)
	}
	w = do(n, "/logs/?query=kubelet", "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != "log of kubelet" || w.Header().Get("Content-Encoding") != "gzip" {
		t.Errorf("%q %v", text, err)
	}
	for err, status := range map[error]int{
		fmt.Errorf("%w: 4 queries", rpcerr.ErrExhausted): 429, fmt.Errorf("%w: no", rpcerr.ErrUnavailable): 503, errors.New("x"): 500,
	} {
		n.err = err
		if w := do(n, "/logs/?query=kubelet"); w.Code != status {
			t.Errorf("%v: %d, want %d", err, w.Code, status)
		}
	}
}

// dated is an answer whose deadline is noted.
type dated struct {
	*httptest.ResponseRecorder
	until time.Time
}

func (d *dated) SetWriteDeadline(at time.Time) error {
	d.until = at
	return nil
}

func TestWhoTakesNothingHoldsNoQueryForLong(t *testing.T) {
	w := &dated{ResponseRecorder: httptest.NewRecorder()}
	Handler(&fakeNode{}, true).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/logs/?query=kubelet", nil))
	if left := time.Until(w.until); left <= queryTime/2 || left > queryTime {
		t.Errorf("a client may take %s", left)
	}
	w = &dated{ResponseRecorder: httptest.NewRecorder()}
	Handler(&fakeNode{text: "x"}, true).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/logs/a.log", nil))
	if !w.until.IsZero() {
		t.Error("a file has a deadline, which may be large")
	}
}
