package nodelog

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

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
