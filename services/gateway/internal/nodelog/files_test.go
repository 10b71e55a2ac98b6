package nodelog

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/rpcerr"
)

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
