package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

func restConfig(token string) *rest.Config {
	return &rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func sessionURL(s *Service, path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: s.Addresses()["secure"], Path: path, RawQuery: query.Encode()}
}

// executors are both ways that clients have; the WebSocket one speaks v5.
func executors(t testing.TB, u *url.URL, token string) map[string]remotecommand.Executor {
	t.Helper()
	viaSPDY, err := remotecommand.NewSPDYExecutor(restConfig(token), http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	webSocket, err := remotecommand.NewWebSocketExecutor(restConfig(token), http.MethodGet, u.String())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]remotecommand.Executor{"SPDY": viaSPDY, "WebSocket": webSocket}
}

func TestExecCarriesStreamsBothWays(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	u := sessionURL(s, "/exec/ns/p/c", url.Values{"command": {"cat"}, "input": {"1"}, "output": {"1"}})
	payload := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	for name, executor := range executors(t, u, "admin-token") {
		var out bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(payload), Stdout: &out})
		if err != nil || out.String() != payload {
			t.Errorf("%s: %v, %d bytes of %d came back", name, err, out.Len(), len(payload))
		}
	}
}

func TestOlderWebSocketProtocolsGoToTheRuntimeUntouched(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	u := sessionURL(s, "/exec/ns/p/c", url.Values{"command": {"echo", "hi"}, "output": {"1"}})
	executor, err := remotecommand.NewWebSocketExecutorForProtocols(restConfig("admin-token"), http.MethodGet, u.String(), "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}); err != nil || out.String() != "echo hi" {
		t.Errorf("%v %q", err, out.String())
	}
}

func TestExecReportsTheExitCodeAndStderr(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	u := sessionURL(s, "/exec/ns/p/u/c", url.Values{"command": {"fail", "a b"}, "output": {"1"}, "error": {"1"}})
	for name, executor := range executors(t, u, "admin-token") {
		var out, errOut bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut})
		var exit exec.CodeExitError
		if !errors.As(err, &exit) || exit.Code != 3 || errOut.String() != "no good" {
			t.Errorf("%s: %v, stderr %q", name, err, errOut.String())
		}
	}
	h.fake.mu.Lock()
	defer h.fake.mu.Unlock()
	for _, seen := range h.fake.seen {
		if seen != "exec [fail a b] in=false out=true err=true tty=false" {
			t.Errorf("podsync was asked for %q", seen)
		}
	}
}

type oneSize struct{ sent bool }

func (q *oneSize) Next() *remotecommand.TerminalSize {
	if q.sent {
		return nil
	}
	q.sent = true
	return &remotecommand.TerminalSize{Width: 120, Height: 40}
}

func TestATerminalIsResized(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	u := sessionURL(s, "/exec/ns/p/c", url.Values{"command": {"size"}, "output": {"1"}, "error": {"1"}, "tty": {"1"}})
	for name, executor := range executors(t, u, "admin-token") {
		var out bytes.Buffer
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: &oneSize{}})
		if err != nil || out.String() != "tty=true 120x40" {
			t.Errorf("%s: %v %q", name, err, out.String())
		}
	}
}

func TestAttachIsProxied(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	u := sessionURL(s, "/attach/ns/p/c", url.Values{"output": {"1"}})
	for name, executor := range executors(t, u, "admin-token") {
		var out bytes.Buffer
		if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out}); err != nil || out.String() != "attached to id" {
			t.Errorf("%s: %v %q", name, err, out.String())
		}
	}
}

func TestSessionsThatCannotBeOpenedSayWhy(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	for _, c := range []struct {
		path, command, token string
		status               int
		body                 string
	}{
		{"/exec/ns/nosuch/c", "x", "admin-token", 404, "pod does not exist"},
		{"/exec/ns/p/nosuch", "x", "admin-token", 500, "container not found"},
		{"/exec/ns/p/c", "busy", "admin-token", 429, "in-flight"},
		{"/attach/ns/nosuch/c", "", "admin-token", 404, "pod does not exist"},
		{"/portForward/ns/nosuch", "", "admin-token", 404, "pod does not exist"},
		{"/portForward/ns/p/other", "", "admin-token", 404, "pod not found"},
		{"/exec/ns/p/c", "x", "reader-token", 403, "verb=create"},
		{"/portForward/ns/p", "", "reader-token", 403, "verb=create"},
	} {
		u := sessionURL(s, c.path, url.Values{"command": {c.command}, "output": {"1"}})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "SPDY/3.1")
		req.Header.Set("Authorization", "Bearer "+c.token)
		client := httpClient(t)
		client.Transport.(*http.Transport).ForceAttemptHTTP2 = false //nolint:forcetypeassert // made above
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status || !strings.Contains(string(body), c.body) {
			t.Errorf("%s %s: %d %q, want %d with %q", c.path, c.command, res.StatusCode, body, c.status, c.body)
		}
		if c.status == 429 && res.Header.Get("Retry-After") != "60" {
			t.Errorf("Retry-After is %q", res.Header.Get("Retry-After"))
		}
	}
}

func TestPortsAreForwardedOverSPDYAndOverWebSocket(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	u := sessionURL(s, "/portForward/ns/p", nil)
	transport, upgrader, err := spdy.RoundTripperFor(restConfig("admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(u, restConfig("admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	viaSPDY := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(viaSPDY, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	forward(t, "SPDY", forwarder, stop, ready, err)
	stop, ready = make(chan struct{}), make(chan struct{})
	forwarder, err = portforward.NewOnAddresses(tunnel, []string{"127.0.0.1"}, []string{"0:80"}, stop, ready, io.Discard, io.Discard)
	forward(t, "WebSocket", forwarder, stop, ready, err)
}

func forward(t *testing.T, name string, f *portforward.PortForwarder, stop, ready chan struct{}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	defer func() {
		close(stop)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}()
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Errorf("%s: %v", name, err)
		return
	}
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	var d net.Dialer
	conn, err := d.DialContext(context.WithoutCancel(t.Context()), "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "sandbox:80 ping" {
		t.Errorf("%s: %v %q", name, err, got)
	}
}
