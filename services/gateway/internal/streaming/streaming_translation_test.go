package streaming

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/websocket"
)

// located is a Runtime whose sessions are all at one place.
type located struct {
	asked
	url string
}

func (l *located) OpenExec(context.Context, Target, []string, Streams) (Opened, error) {
	return Opened{URL: l.url}, nil
}

func (l *located) OpenPortForward(context.Context, Target, []int32) (string, error) {
	return l.url, nil
}

func TestWebSocketsReachTheRuntimeAsTheyAreOnlyWithoutTranslation(t *testing.T) {
	for _, tc := range []struct {
		path, protocol, want string
		keep                 bool
	}{
		{"/exec?command=x&output=1", "v5.channel.k8s.io", "SPDY/3.1", false},
		{"/exec?command=x&output=1", "v5.channel.k8s.io", "websocket", true},
		{"/portForward", "SPDY/3.1+portforward.k8s.io", "SPDY/3.1", false},
		{"/portForward?port=80", "SPDY/3.1+portforward.k8s.io", "websocket", true},
	} {
		upgrades := make(chan string, 16) // a translation may ask again
		runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			upgrades <- r.Header.Get("Upgrade")
			http.Error(w, "seen", http.StatusForbidden)
		}))
		s := Sessions{Runtime: &located{url: runtime.URL}, Meter: noMeter{}, NoTranslation: tc.keep}
		mux := http.NewServeMux()
		mux.Handle("/exec", s.Exec())
		mux.Handle("/portForward", s.PortForward())
		front := httptest.NewServer(mux)
		config, err := websocket.NewConfig("ws"+front.URL[len("http"):]+tc.path, "http://localhost")
		if err != nil {
			t.Fatal(err)
		}
		config.Protocol = []string{tc.protocol}
		conn, err := config.DialContext(t.Context())
		// A client that leaves before the runtime was asked has it not asked.
		if got := <-upgrades; got != tc.want {
			t.Errorf("%s with %s, kept %v: the runtime saw %q, want %q", tc.path, tc.protocol, tc.keep, got, tc.want)
		}
		if err == nil {
			conn.Close()
		}
		front.Close()
		runtime.Close()
	}
}
