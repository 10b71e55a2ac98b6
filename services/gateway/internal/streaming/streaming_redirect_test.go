package streaming

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	proxyutil "k8s.io/apimachinery/pkg/util/proxy"
)

// No request without an upgrade comes as far as the proxy, which would pass such a runtime's
// redirect on: it must not if one does (CVE-2020-8559).
func TestARuntimesRedirectOfARequestWithoutAnUpgradeIsNotPassedOn(t *testing.T) {
	runtime := httptest.NewServer(http.RedirectHandler("https://elsewhere.example/", http.StatusTemporaryRedirect))
	defer runtime.Close()
	location, err := url.Parse(runtime.URL + "/exec/token")
	if err != nil {
		t.Fatal(err)
	}
	h, is := passOn(location, transport(func() {})).(*proxyutil.UpgradeAwareHandler)
	if !is || !h.UpgradeRequired {
		t.Fatal("requests without an upgrade are passed on")
	}
	h.UpgradeRequired = false
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/exec/ns/p/c", http.NoBody))
	if w.Code != http.StatusBadGateway || w.Header().Get("Location") != "" {
		t.Errorf("the answer is %d, to %q", w.Code, w.Header().Get("Location"))
	}
}
