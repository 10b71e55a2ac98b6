package tracing

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

// bad are texts that strangers may have put into a request or an answer.
var bad = map[string]string{
	"no text":           "a\xffb",
	"long":              strings.Repeat("ü", 1<<20),
	"long and no text":  strings.Repeat("\xff\xc3a", 10_000),
	"cut in a rune":     "a" + strings.Repeat("ü", 1000),
	"an end that fails": strings.Repeat("a", longest) + "\xc3",
}

func TestATextThatNoCollectorTakesIsMadeOneThatItDoes(t *testing.T) {
	for name, text := range bad {
		if got := Text(text); !utf8.ValidString(got) || len(got) > longest || got == "" {
			t.Errorf("%s: %d bytes, %.20q", name, len(got), got)
		}
	}
	for _, fine := range []string{"", "/pods", "ü", strings.Repeat("a", longest)} {
		if got := Text(fine); got != fine {
			t.Errorf("%q became %q", fine, got)
		}
	}
	if got := Text("a\xffb"); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}

// One span that cannot be encoded has its whole batch thrown away.
func TestNothingThatStrangersSayLosesTheSpansBesideIt(t *testing.T) {
	for name, text := range bad {
		t.Run(name, func(t *testing.T) {
			spans := collected(t, 1_000_000, func(a, b *Provider) {
				for _, path := range []string{"/pods", "/" + text} {
					r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
					r.URL.Path = path
					a.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
				}
				strange := httptest.NewRequest("M"+strings.Repeat("M", 100_000), "/", http.NoBody)
				a.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), strange)
				_ = call(t.Context(), a, b, "/polylet.x/Do", errors.New(text))
				r := httptest.NewRequest(http.MethodPost, "http://x/", http.NoBody)
				r.URL.Path, r.URL.Host = text, text
				away := a.Transport(roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New(text) }))
				if resp, err := away.RoundTrip(r); err == nil {
					resp.Body.Close()
					t.Error("an error is lost")
				}
			})
			if len(spans) != 5 {
				t.Errorf("%d spans are collected", len(spans))
			}
			for name, s := range spans {
				wantText(t, name, s)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func wantText(t *testing.T, name string, s *tracev1.Span) {
	t.Helper()
	texts := []string{s.GetName(), s.GetStatus().GetMessage()}
	for _, a := range s.GetAttributes() {
		texts = append(texts, a.GetValue().GetStringValue())
	}
	for _, text := range texts {
		if !utf8.ValidString(text) || len(text) > longest {
			t.Errorf("%.40s has a text of %d bytes: %.40q", name, len(text), text)
		}
	}
}
