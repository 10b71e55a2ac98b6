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
	"path/filepath"
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
		"query=a&sinceTime=yesterday": 400, "query=a&untilTime=1": 400, "query=a&pattern=(": 400,
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

func TestFilesAreServedAsByGosFileServer(t *testing.T) {
	n := &fakeNode{text: "0123456789"}
	for _, c := range []struct {
		path   string
		header []string
		status int
		body   string
	}{
		{"/logs/", nil, 200, "<a href=\"dir/\">dir/</a>"},
		{"/logs/", nil, 200, "&lt;b&gt;"},
		{"/logs/dir", nil, 301, ""},
		{"/logs/a.log", nil, 200, "0123456789"},
		{"/logs/a.log", []string{"Range", "bytes=4-6"}, 206, "456"},
		{"/logs/a.log", []string{"Range", "bytes=-2"}, 206, "89"},
		{"/logs/a.log", []string{"Range", "bytes=10-"}, 416, ""},
		{"/logs/a.log", []string{"Range", "bytes=0-0" + strings.Repeat(",1-1", 8)}, 206, "Content-Range: bytes 1-1/10"},
		{"/logs/a.log", []string{"Range", "bytes=0-0" + strings.Repeat(",1-1", 16)}, 416, "too many ranges"},
		{"/logs/a.log", []string{"If-Modified-Since", time.Unix(1e9, 0).UTC().Format(http.TimeFormat)}, 304, ""},
		{"/logs/nosuch", nil, 404, "404 page not found"},
		{"/logs/?query=/a.log", nil, 200, "0123456789"},
		{"/logs/a.log?query=kubelet", nil, 406, "path not allowed in query mode"},
	} {
		w := do(n, c.path, c.header...)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %v: %d %q, want %d with %q", c.path, c.header, w.Code, w.Body, c.status, c.body)
		}
		if w.Code < 400 && w.Header().Get("Content-Security-Policy") != "sandbox" {
			t.Errorf("%s: a browser would run what is in it", c.path)
		}
	}
	if w := do(n, "/logs/a.log"); w.Header().Get("Content-Length") != "10" || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/") {
		t.Errorf("headers %v", w.Header())
	}
	n.err = fmt.Errorf("%w: nodestatus is away", rpcerr.ErrUnavailable)
	if w := do(n, "/logs/a.log"); w.Code != 500 {
		t.Errorf("without nodestatus: %d %q", w.Code, w.Body)
	}
}

func TestARangeIsReadFromWhereItBegins(t *testing.T) {
	n := &fakeNode{text: strings.Repeat("x", 1000)}
	do(n, "/logs/a.log", "Range", "bytes=990-")
	if len(n.reads) == 0 || n.reads[len(n.reads)-1] != 990 {
		t.Errorf("read from %v", n.reads)
	}
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

func FuzzAQueryThatPassesNamesNothingOutside(f *testing.F) {
	for _, seed := range []string{
		"query=kubelet&tailLines=5", "query=/a/b.log", `query=\..\x`, "query=..%2fx", "query=/%2e%2e/x", "query=a&pattern=(a%2B)%2B", "boot=-1",
		"sinceTime=2026-01-02T03:04:05Z&query=a", "query=%00", "query=a%20b", "query=.&query=..", "tailLines=9999999999",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		q, refused := parse(values)
		if refused != nil {
			if refused.status != 400 && refused.status != 406 || refused.Error() == "" {
				t.Fatalf("status %d, %q", refused.status, refused.Error())
			}
			return
		}
		if q == nil {
			return
		}
		for _, name := range q.Files {
			if clean := filepath.Join("/var/log", file(name)); clean != "/var/log" && !strings.HasPrefix(clean, "/var/log/") {
				t.Fatalf("%q reads %s", name, clean)
			}
		}
		for _, s := range q.Services {
			if strings.ContainsAny(s, "/\\ \x00\n;|&$*?") || len(s) > longestName || s == ".." {
				t.Fatalf("service %q passes", s)
			}
		}
		if q.TailLines != nil && (*q.TailLines < 0 || *q.TailLines > mostTailLines) || q.Boot != nil && *q.Boot > 0 || len(q.Pattern) > longestRegexp {
			t.Fatalf("%+v passes", q)
		}
	})
}
