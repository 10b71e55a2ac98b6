package zpage

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPagesAreTextOrTheNegotiatedKindAndElse406(t *testing.T) {
	status := Statusz("v1.36.6", []string{"/pods", "/healthz/ping"})
	flags := Flagz(map[string]string{"v": "2", "node-ip": "10.0.0.1"})
	const beta = "application/json;as=%s;v=v1beta1;g=config.k8s.io"
	for _, c := range []struct {
		h      http.Handler
		accept string
		status int
		body   []string
	}{
		{status, "", 200, []string{"kubelet statusz", "1.36", "/healthz"}},
		{status, "text/plain", 200, []string{"kubelet statusz"}},
		{status, "*/*", 200, []string{"kubelet statusz"}},
		{status, strings.ReplaceAll(beta, "%s", "Statusz"), 200, []string{`"kind":"Statusz"`, `"apiVersion":"config.k8s.io/v1beta1"`, `"binaryVersion":"1.36.6"`, "/pods"}},
		{status, "application/json;as=Statusz;v=v1alpha1;g=config.k8s.io", 200, []string{"v1alpha1"}},
		{status, "application/yaml;as=Statusz;v=v1beta1;g=config.k8s.io", 200, []string{"kind: Statusz"}},
		{status, "application/json", 406, nil},
		{status, strings.ReplaceAll(beta, "%s", "Flagz"), 406, nil},
		{status, "application/vnd.kubernetes.protobuf;as=Statusz;v=v1beta1;g=config.k8s.io", 406, nil},
		{flags, "", 200, []string{"kubelet flagz", "node-ip", "10.0.0.1"}},
		{flags, strings.ReplaceAll(beta, "%s", "Flagz"), 200, []string{`"kind":"Flagz"`, `"node-ip":"10.0.0.1"`}},
		{flags, "text/html", 406, nil},
	} {
		r := httptest.NewRequest("GET", "/x", nil)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		w := httptest.NewRecorder()
		c.h.ServeHTTP(w, r)
		body := strings.NewReplacer(": ", ":", "\": ", "\":").Replace(w.Body.String())
		for _, want := range c.body {
			if !strings.Contains(body, want) && !strings.Contains(w.Body.String(), want) {
				t.Errorf("%q: %q has no %q", c.accept, w.Body, want)
			}
		}
		if w.Code != c.status {
			t.Errorf("%q: %d %q, want %d", c.accept, w.Code, w.Body, c.status)
		}
		if old := strings.Contains(c.accept, "v1alpha1"); old != strings.HasPrefix(w.Header().Get("Warning"), "299") {
			t.Errorf("%q: Warning is %q", c.accept, w.Header().Get("Warning"))
		}
	}
}
