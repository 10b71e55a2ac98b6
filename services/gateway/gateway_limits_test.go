package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"

	gatewayv1 "github.com/polylet/polylet/api/gen/polylet/gateway/v1"
	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/services/gateway/internal/listen"
)

// openSessions asks the gateway how many streams are open.
func openSessions(t *testing.T, s *Service) int32 {
	t.Helper()
	res, err := s.server.ListListeners(t.Context(), &gatewayv1.ListListenersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range res.GetListeners() {
		if l.GetName() == "secure" {
			return l.GetOpenSessions()
		}
	}
	t.Fatal("there is no secure port")
	return 0
}

func TestSixtyFourSessionsAtOnceEachKeepTheirOwnBytesAndLeaveNothing(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	u := sessionURL(s, "/exec/ns/p/c", url.Values{"command": {"cat"}, "input": {"1"}, "output": {"1"}})
	before := runtime.NumGoroutine()
	const sessions = 64
	var group sync.WaitGroup
	inputs := make([]*io.PipeWriter, sessions)
	outputs := make([]bytes.Buffer, sessions)
	failures := make([]error, sessions)
	for i := range sessions {
		executor := executors(t, u, "admin-token")[[]string{"SPDY", "WebSocket"}[i%2]]
		in, w := io.Pipe()
		inputs[i] = w
		group.Go(func() {
			failures[i] = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &outputs[i]})
		})
	}
	eventually.True(t, "it did not come true that 64 sessions are open", func() bool { return openSessions(t, s) == sessions })
	// Others are served meanwhile.
	if got := ask(t, httpClient(t), "GET", "https://"+s.Addresses()["secure"]+"/pods", "admin-token"); got.status != 200 {
		t.Errorf("/pods beside them: %d", got.status)
	}
	for i, w := range inputs {
		group.Go(func() {
			fmt.Fprint(w, strings.Repeat(fmt.Sprintf("session %d;", i), 1000))
			w.Close()
		})
	}
	group.Wait()
	for i := range sessions {
		if want := strings.Repeat(fmt.Sprintf("session %d;", i), 1000); failures[i] != nil || outputs[i].String() != want {
			t.Errorf("session %d: %v, %d bytes of %d", i, failures[i], outputs[i].Len(), len(want))
		}
	}
	eventually.True(t, "it did not come true that all sessions are closed", func() bool { return openSessions(t, s) == 0 })
	eventually.True(t, "it did not come true that their goroutines are gone", func() bool { return runtime.NumGoroutine() < before+sessions/2 })
}

func TestASessionMayBeSilentForLongerThanAnyTimeoutOfThePort(t *testing.T) {
	h := newHouse(t)
	limits := listen.DefaultLimits()
	limits.Header, limits.Idle, limits.Body = 2*time.Second, time.Second, time.Second // a handshake takes its time on a busy machine
	s := h.start(t, func(c *Config) { c.Limits = &limits })
	u := sessionURL(s, "/exec/ns/p/c", url.Values{"command": {"cat"}, "input": {"1"}, "output": {"1"}})
	var group sync.WaitGroup
	for name, executor := range executors(t, u, "admin-token") {
		group.Go(func() {
			in, w := io.Pipe()
			time.AfterFunc(2*limits.Header, func() {
				fmt.Fprint(w, "late")
				w.Close()
			})
			var out bytes.Buffer
			err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out})
			if err != nil || out.String() != "late" {
				t.Errorf("%s: %v %q", name, err, out.String())
			}
		})
	}
	group.Wait()
}

func TestAClientThatLeavesEndsItsSession(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	for _, command := range []string{"cat", "chatter", "mute chatter", "silent", "mute silent"} {
		query := url.Values{"command": {strings.TrimPrefix(command, "mute ")}, "output": {"1"}}
		if !strings.HasPrefix(command, "mute ") {
			query.Set("input", "1")
		}
		u := sessionURL(s, "/exec/ns/p/c", query)
		for name, executor := range executors(t, u, "admin-token") {
			ctx, cancel := context.WithCancel(t.Context())
			in, w := io.Pipe()
			back, out := io.Pipe()
			options := remotecommand.StreamOptions{Stdin: in, Stdout: out}
			if query.Get("input") == "" {
				options.Stdin = nil
			}
			done := make(chan error, 1)
			go func() { done <- executor.StreamWithContext(ctx, options) }()
			if command == "cat" {
				fmt.Fprint(w, "x")
			}
			if _, err := io.ReadFull(back, make([]byte, 1)); err != nil || openSessions(t, s) != 1 {
				t.Errorf("%s %s: %v, %d sessions", name, command, err, openSessions(t, s))
			}
			cancel()
			if err := <-done; err == nil {
				t.Errorf("%s %s: it ended well", name, command)
			}
			eventually.True(t, name+": the session of "+command+" has ended", func() bool { return openSessions(t, s) == 0 })
			w.Close()
			back.Close()
		}
	}
}

func TestAFloodOfUnknownClientsKeepsNobodyOut(t *testing.T) {
	h := newHouse(t)
	limits := listen.DefaultLimits()
	limits.Unknown = 16
	s := h.start(t, func(c *Config) { c.Limits = &limits })
	address := s.Addresses()["secure"]
	client := httpClient(t)
	if got := ask(t, client, "GET", "https://"+address+"/pods", "admin-token"); got.status != 200 {
		t.Fatal(got)
	}
	goroutines := runtime.NumGoroutine()
	var d net.Dialer
	for range 300 {
		conn, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for _, c := range []*http.Client{client, httpClient(t)} {
		if got := ask(t, c, "GET", "https://"+address+"/pods", "admin-token"); got.status != 200 {
			t.Errorf("during the flood: %d %q", got.status, got.body)
		}
	}
	eventually.True(t, "it did not come true that the flood costs few goroutines", func() bool { return runtime.NumGoroutine() < goroutines+4*limits.Unknown })
}

// writePair writes a serving pair in one file, as the apiserver's signer's is
// kept.
func writePair(t *testing.T, file, host string) {
	t.Helper()
	signer, der := certificate(t, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, nil, nil)
	keyDER, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	temporary := file + ".new"
	if err := errors.Join(os.WriteFile(temporary, append(cert, key...), 0o600), os.Rename(temporary, file)); err != nil {
		t.Fatal(err)
	}
}

// shownName is the name in the certificate that a new connection is shown.
func shownName(t *testing.T, address string) (string, error) {
	t.Helper()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].DNSNames[0], nil //nolint:forcetypeassert // tls.Dialer's
}

func TestAServingCertificateThatComesLateAndIsRotatedDropsNoConnection(t *testing.T) {
	h := newHouse(t)
	file := filepath.Join(t.TempDir(), "kubelet-server-current.pem")
	s := h.start(t, func(c *Config) {
		c.CertFile, c.KeyFile, c.WaitForCert, c.CertHosts = file, file, true, []string{"meanwhile.example"}
	})
	address := s.Addresses()["secure"]
	if name, err := shownName(t, address); name != "meanwhile.example" {
		t.Errorf("before it was written, %q is shown, %v", name, err)
	}
	if got := ask(t, httpClient(t), "GET", "https://"+address+"/pods", "admin-token"); got.status != 200 {
		t.Errorf("before it was written: %d %q", got.status, got.body)
	}
	writePair(t, file, "first")
	if name, err := shownName(t, address); name != "first" {
		t.Errorf("%q is shown, %v", name, err)
	}
	u := sessionURL(s, "/exec/ns/p/c", url.Values{"command": {"cat"}, "input": {"1"}, "output": {"1"}})
	in, w := io.Pipe()
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		done <- executors(t, u, "admin-token")["WebSocket"].StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out})
	}()
	fmt.Fprint(w, "before ")
	client := httpClient(t)
	ask(t, client, "GET", "https://"+address+"/pods", "admin-token")

	writePair(t, file, "second")
	if name, err := shownName(t, address); name != "second" {
		t.Errorf("after the rotation %q is shown, %v", name, err)
	}
	if got := ask(t, client, "GET", "https://"+address+"/pods", "admin-token"); got.status != 200 {
		t.Errorf("on the connection from before: %d %q", got.status, got.body)
	}
	fmt.Fprint(w, "and after")
	w.Close()
	if err := <-done; err != nil || out.String() != "before and after" {
		t.Errorf("the session from before: %v %q", err, out.String())
	}
}

func TestHealthzTellsWhichProcessAndWhichCheckFailsAndCountsIt(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	client, base := httpClient(t), "http://"+s.Addresses()["read-only"]
	if got := ask(t, client, "GET", base+"/healthz?verbose", ""); got.status != 200 ||
		got.body != "[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\n[+]podsync ok\n[+]probes ok\n[+]stats ok\n[+]nodestatus ok\nhealthz check passed\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	h.process.mu.Lock()
	h.process.sick = map[string]string{"syncloop": "stands still", "log": "disk is full"}
	h.process.mu.Unlock()
	h.probes.Down()
	got := ask(t, client, "GET", base+"/healthz", "")
	for _, want := range []string{"[-]syncloop failed: reason withheld\n", "[-]log failed", "[-]probes failed", "[+]stats ok", "healthz check failed\n"} {
		if got.status != 500 || !strings.Contains(got.body, want) {
			t.Errorf("%d %q, want %q", got.status, got.body, want)
		}
	}
	if got := ask(t, client, "GET", base+"/healthz/syncloop", ""); got.status != 500 || got.body != "internal server error: syncloop: stands still\n" {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got := ask(t, client, "GET", base+"/healthz?exclude=syncloop&exclude=log&exclude=probes", ""); got.status != 200 {
		t.Errorf("without what fails: %d %q", got.status, got.body)
	}
	if got := ask(t, client, "GET", base+"/metrics/slis", ""); !strings.Contains(got.body, `kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 1`) {
		t.Errorf("%q", got.body)
	}
	h.probes.Up()
}

func TestTheVerbosityReachesTheProcesses(t *testing.T) {
	h := newHouse(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://"+h.start(t, nil).Addresses()["secure"]+"/debug/flags/v", strings.NewReader("6"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer admin-token")
	res, err := httpClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	h.process.mu.Lock()
	defer h.process.mu.Unlock()
	if res.StatusCode != 200 || h.process.verbosity != 6 || !strings.Contains(string(body), "to 6") {
		t.Errorf("%d %q %v, podsync has %d", res.StatusCode, body, err, h.process.verbosity)
	}
}
