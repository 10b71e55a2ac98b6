package gateway

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A runtime that was taken over may want the client, with its credentials and
// its standard input, to go elsewhere (CVE-2020-8559).
func TestARuntimesRedirectIsNeverPassedOnNorFollowed(t *testing.T) {
	var elsewhere, asked atomic.Int32
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer trap.Close()
	h := newHouse(t)
	for _, code := range []int{301, 302, 303, 307, 308, 200} {
		h.runtime.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.Header().Set("Location", trap.URL+"/exec/other/pod/c?command=id")
			w.WriteHeader(code)
		})
		s := h.start(t, nil)
		for _, path := range []string{"/exec/ns/p/c?command=cat&output=1", "/attach/ns/p/c?output=1", "/portForward/ns/p?port=80"} {
			for name, headers := range map[string]string{
				"SPDY": "POST %s HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n",
				"WebSocket": "GET %s HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
					"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n",
				"WebSocket, version 5": "GET %s HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
					"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n",
				"no upgrade": "POST %s HTTP/1.1\r\n",
			} {
				conn := knock(t, s.Addresses()["secure"], fmt.Sprintf(headers, path)+"Host: x\r\nContent-Length: 0\r\nAuthorization: Bearer admin-token\r\n\r\n")
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Errorf("%d %s by %s: %v", code, path, name, err)
					continue
				}
				res.Body.Close()
				if res.StatusCode/100 == 3 || res.Header.Get("Location") != "" || strings.Contains(res.Status, trap.URL) {
					t.Errorf("%d %s by %s: %s to %q", code, path, name, res.Status, res.Header.Get("Location"))
				}
			}
		}
	}
	if n, m := elsewhere.Load(), asked.Load(); n != 0 || m < 6*3*3 {
		t.Errorf("the gateway went there %d times, after %d redirects", n, m)
	}
}
