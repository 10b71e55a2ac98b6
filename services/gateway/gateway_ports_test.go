package gateway

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestTheRuntimeIsAskedForNoMorePortsThanOneSessionCanHave: it makes two channels for each.
func TestTheRuntimeIsAskedForNoMorePortsThanOneSessionCanHave(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	for ports, status := range map[int]int{128: http.StatusSwitchingProtocols, 129: http.StatusBadRequest, 5000: http.StatusBadRequest} {
		u := sessionURL(s, "/portForward/ns/p", url.Values{"port": {"80" + strings.Repeat(",80", ports-1)}})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
			"Sec-WebSocket-Protocol": "v4.channel.k8s.io", "Authorization": "Bearer admin-token",
		} {
			req.Header.Set(name, value)
		}
		client := httpClient(t)
		client.Transport.(*http.Transport).ForceAttemptHTTP2 = false //nolint:forcetypeassert // made above
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body := []byte{}
		if res.StatusCode != http.StatusSwitchingProtocols {
			body, _ = io.ReadAll(res.Body)
		}
		res.Body.Close()
		if res.StatusCode != status || status == http.StatusBadRequest && !strings.Contains(string(body), "ports are too many") {
			t.Errorf("%d ports: %d %.100q, want %d", ports, res.StatusCode, body, status)
		}
	}
}
