package streaming

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// asked is a Runtime that opens nothing and notes what it was asked for.
type asked struct {
	command []string
	streams *Streams
	ports   []int32
	any     bool
}

var errAsked = errors.New("asked")

func (a *asked) OpenExec(_ context.Context, _ Target, command []string, s Streams) (Opened, error) {
	a.command, a.streams, a.any = command, &s, true
	return Opened{}, errAsked
}

func (a *asked) OpenAttach(_ context.Context, _ Target, s Streams) (string, error) {
	a.streams, a.any = &s, true
	return "", errAsked
}

func (a *asked) OpenPortForward(_ context.Context, _ Target, ports []int32) (string, error) {
	a.ports, a.any = ports, true
	return "", errAsked
}

func (a *asked) Run(_ context.Context, _ Target, command []string) (*Output, error) {
	a.command, a.any = command, true
	return nil, errAsked
}

type noMeter struct{}

func (noMeter) Begin() func()     { return func() {} }
func (noMeter) Translated(string) {}

func FuzzHeadersAndQueryOfASessionNeverAskTheRuntimeForNonsense(f *testing.F) {
	for _, seed := range [][5]string{
		{"exec", "GET", "command=x&output=1", "Upgrade", "v5.channel.k8s.io"},
		{"exec", "POST", "command=x&input=1&tty=1&error=1", "upgrade, keep-alive", "v4.channel.k8s.io,base64.channel.k8s.io"},
		{"exec", "POST", "command=", "Upgrade", ""},
		{"attach", "GET", "output=true&error=2", "Upgrade", "channel.k8s.io"},
		{"portForward", "GET", "port=80&port=443,8080", "Upgrade", "v4.base64.portforward.k8s.io"},
		{"portForward", "GET", "port=-1&port=65536", "Upgrade", "portforward.k8s.io"},
		{"portForward", "GET", "", "Upgrade", "SPDY/3.1+portforward.k8s.io"},
		{"run", "POST", "cmd=a++b", "", ""},
		{"exec", "GET", "output=1;command=x", "Upgrade", ",,,"},
		{"exec", "GET", "output=%zz", "", "\x00"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], "websocket")
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], "SPDY/3.1")
	}
	f.Fuzz(func(t *testing.T, kind, method, query, connection, protocol, upgrade string) {
		if method != http.MethodGet && method != http.MethodPost {
			return
		}
		a := &asked{}
		s := Sessions{Runtime: a, Meter: noMeter{}}
		handlers := map[string]http.Handler{"exec": s.Exec(), "attach": s.Attach(), "portForward": s.PortForward(), "run": s.Run()}
		h, ok := handlers[kind]
		if !ok {
			return
		}
		r := httptest.NewRequest(method, "/"+kind+"/ns/p/c", strings.NewReader(""))
		r.URL.RawQuery = query
		r.Header["Connection"], r.Header["Upgrade"] = []string{connection}, []string{upgrade}
		r.Header["Sec-Websocket-Protocol"], r.Header["X-Stream-Protocol-Version"] = []string{protocol}, strings.Split(protocol, ",")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if a.any && w.Code != http.StatusInternalServerError || !a.any && w.Code != http.StatusBadRequest {
			t.Fatalf("status %d, runtime asked: %v", w.Code, a.any)
		}
		if a.streams != nil && (!a.streams.Stdin && !a.streams.Stdout && !a.streams.Stderr || a.streams.TTY && a.streams.Stderr) {
			t.Fatalf("streams %+v", *a.streams)
		}
		if slices.ContainsFunc(a.ports, func(p int32) bool { return p < 1 || p > 65535 }) {
			t.Fatalf("ports %v", a.ports)
		}
		if a.ports != nil && wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
			t.Fatalf("a tunnel has ports %v", a.ports)
		}
	})
}
