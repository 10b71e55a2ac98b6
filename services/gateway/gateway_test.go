package gateway

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	gatewayv1 "github.com/polylet/polylet/api/gen/polylet/gateway/v1"
)

type answerOf struct {
	status int
	body   string
	header http.Header
}

func ask(t *testing.T, client *http.Client, method, url, token string) answerOf {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answerOf{res.StatusCode, string(body), res.Header}
}

func httpClient(t testing.TB, certs ...tls.Certificate) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certs}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestPathsMethodsAndIdentitiesOnTheSecurePort(t *testing.T) {
	h := newHouse(t)
	base := "https://" + h.start(t, nil).Addresses()["secure"]
	client := httpClient(t)
	const admin = "admin-token"
	for _, c := range []struct {
		method, path, token string
		status              int
		body                string // contained
	}{
		{"GET", "/healthz", "", 401, "Unauthorized"},
		{"GET", "/healthz", "unknown-token", 401, "Unauthorized"},
		{"GET", "/nothing", "metrics-token", 403, "Forbidden (user=metrics, verb=get, resource=nodes, subresource(s)=[proxy])"},
		{"GET", "/nothing", admin, 404, "404: Page Not Found"},
		{"GET", "/metrics", "metrics-token", 200, "kubelet_running_pods"},
		{"GET", "/pods", "metrics-token", 403, "[pods proxy]"},
		{"GET", "/pods", "reader-token", 200, `"kind":"PodList"`},
		{"GET", "/pods/", "reader-token", 200, `"kind":"PodList"`},
		{"GET", "/pods//", admin, 404, "404: Page Not Found"},
		{"GET", "/stats/summary/", admin, 200, `{"node":{}}`},
		{"GET", "/containerLogs/ns/p/c/", "reader-token", 200, "first\nlast\n"},
		{"GET", "/exec/ns/p/c/?output=1&command=x", "reader-token", 403, "verb=create"},
		{"POST", "/run/ns/p/c/?cmd=echo", admin, 200, "echo!"},
		{"GET", "/metrics/", admin, 404, "404: Page Not Found"},
		{"POST", "/pods", admin, 405, "405: Method Not Allowed"},
		{"GET", "/containerLogs/ns/p/c", "reader-token", 200, "first\nlast\n"},
		{"GET", "/containerLogs/ns/x/c", admin, 404, `pod "x" does not exist`},
		{"GET", "/containerLogs/ns/p/c?tailLines=-1", admin, 422, "Invalid request."},
		{"GET", "/containerLogs/ns//c", admin, 400, "Missing podID."},
		{"GET", "/exec/ns/p/c?output=1&command=x", "reader-token", 403, "verb=create"},
		{"POST", "/exec/ns/p/c?command=x", admin, 400, "you must specify at least 1 of stdin, stdout, stderr"},
		{"GET", "/exec/ns/p/c?output=1&command=x", admin, 400, "Upgrade request required"},
		{"PUT", "/exec/ns/p/c?output=1", admin, 405, "405: Method Not Allowed"},
		{"GET", "/run/ns/p/c?cmd=x", admin, 405, "405: Method Not Allowed"},
		{"POST", "/run/ns/p/c?cmd=echo+a+b", admin, 200, "echo|a|b!"},
		{"POST", "/run/ns/p/u/c?cmd=echo", admin, 200, "echo!"},
		{"POST", "/run/ns/p/other/c?cmd=echo", admin, 404, "pod does not exist"},
		{"POST", "/run/ns/p/nosuch?cmd=echo", admin, 500, "container not found"},
		{"POST", "/run/ns/p/c?cmd=fail", admin, 500, "command 'fail' exited with 2: bad"},
		{"POST", "/run/ns/p/c?cmd=echo", "reader-token", 403, "verb=create"},
		{"GET", "/runningpods/", admin, 200, `"items":[]`},
		{"GET", "/stats/summary", admin, 200, `{"node":{}}`},
		{"POST", "/stats/summary", admin, 200, `{"node":{}}`},
		{"GET", "/spec", admin, 200, `{"num_cores":2}`},
		{"GET", "/metrics/cadvisor", admin, 200, "METRICS_DOCUMENT_CADVISOR 1"},
		{"GET", "/metrics/resource", "metrics-token", 200, "METRICS_DOCUMENT_RESOURCE 1"},
		{"GET", "/metrics/probes", admin, 200, "prober_probe_total"},
		{"GET", "/configz", admin, 200, `{"kubeletconfig":{"kind":"KubeletConfiguration"}}`},
		{"GET", "/healthz?verbose", admin, 200, "[+]syncloop ok"},
		{"GET", "/healthz/syncloop", admin, 200, "ok"},
		{"HEAD", "/healthz", admin, 200, ""},
	} {
		got := ask(t, client, c.method, base+c.path, c.token)
		if got.status != c.status || !strings.Contains(got.body, c.body) {
			t.Errorf("%s %s by %q: %d %q, want %d with %q", c.method, c.path, c.token, got.status, got.body, c.status, c.body)
		}
	}
}

// TestAPathWithoutItsSlashLeadsToTheDirectory, but whom it is not for.
func TestAPathWithoutItsSlashLeadsToTheDirectory(t *testing.T) {
	h := newHouse(t)
	base := "https://" + h.start(t, nil).Addresses()["secure"]
	client := httpClient(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range []string{"/logs", "/runningpods", "/debug/pprof"} {
		for token, want := range map[string]int{"admin-token": http.StatusTemporaryRedirect, "metrics-token": http.StatusForbidden} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path+"?a=b", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if to := res.Header.Get("Location"); res.StatusCode != want || want == http.StatusTemporaryRedirect && to != path+"/?a=b" {
				t.Errorf("%s by %s: %d to %q", path, token, res.StatusCode, to)
			}
		}
	}
}

func TestNoHeaderOfACallerReachesAProcess(t *testing.T) {
	h := newHouse(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+h.start(t, nil).Addresses()["secure"]+"/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer admin-token", "Cookie": "smuggled", "Grpc-Metadata-Smuggled": "smuggled", "Grpc-Timeout": "1n",
		"X-Forwarded-For": "smuggled", "X-Forwarded-Host": "smuggled", "X-Http-Method-Override": "DELETE", "User-Agent": "smuggled", "Te": "trailers",
	} {
		req.Header.Set(name, value)
	}
	res, err := httpClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	h.fake.mu.Lock()
	defer h.fake.mu.Unlock()
	if res.StatusCode != 200 || len(h.fake.header) == 0 {
		t.Fatalf("status %d, metadata %v", res.StatusCode, h.fake.header)
	}
	for name, values := range h.fake.header {
		if text := name + strings.Join(values, " "); strings.Contains(text, "smuggled") || strings.Contains(text, "token") || strings.HasPrefix(name, "x-forwarded") {
			t.Errorf("podsync got %s: %q", name, values)
		}
	}
}

func TestTheReadOnlyPortServesGroupAToEverybody(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	client := httpClient(t)
	for path, status := range map[string]int{
		"/pods": 200, "/metrics": 200, "/metrics/cadvisor": 200, "/metrics/probes": 200, "/metrics/resource": 200,
		"/stats/summary": 200, "/healthz": 200, "/spec": 404, "/configz": 404, "/nothing": 404,
		"/exec/ns/p/c": 405, "/run/ns/p/c": 405, "/attach/ns/p/c": 405, "/portForward/ns/p": 405,
		"/containerLogs/ns/p/c": 405, "/runningpods/": 405, "/logs/": 405, "/debug/pprof/": 405,
	} {
		got := ask(t, client, "GET", "http://"+s.Addresses()["read-only"]+path, "")
		if got.status != status || status == 405 && got.body != "Debug endpoints are disabled." {
			t.Errorf("%s: %d %q, want %d", path, got.status, got.body, status)
		}
	}
	for path, status := range map[string]int{"/healthz": 200, "/healthz/ping": 200, "/metrics": 404, "/pods": 404} {
		if got := ask(t, client, "GET", "http://"+s.Addresses()["healthz"]+path, ""); got.status != status {
			t.Errorf("healthz port %s: %d, want %d", path, got.status, status)
		}
	}
}

func TestWithoutDebuggingHandlersStreamsAreRefused(t *testing.T) {
	h := newHouse(t)
	base := "https://" + h.start(t, func(c *Config) { c.DebuggingHandlers = false }).Addresses()["secure"]
	for path, status := range map[string]int{"/exec/ns/p/c": 405, "/runningpods/": 405, "/configz": 404, "/pods": 200} {
		if got := ask(t, httpClient(t), "GET", base+path, "admin-token"); got.status != status {
			t.Errorf("%s: %d %q, want %d", path, got.status, got.body, status)
		}
	}
}

func TestOneProcessAwayFailsItsPathsOnly(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	client, base := httpClient(t), "http://"+s.Addresses()["read-only"]
	h.podsync.Down()
	h.probes.Down()
	for path, status := range map[string]int{
		"/pods": 503, "/metrics/probes": 503, "/metrics": 200, "/stats/summary": 200, "/healthz/ping": 200, "/healthz/syncloop": 500,
	} {
		if got := ask(t, client, "GET", base+path, ""); got.status != status {
			t.Errorf("%s: %d %q, want %d", path, got.status, got.body, status)
		}
	}
	body := ask(t, client, "GET", base+"/metrics", "").body
	for _, want := range []string{`polylet_up{service="podsync"} 0`, `polylet_up{service="stats"} 1`, "kubelet_node_name"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing in /metrics", want)
		}
	}
	if got := ask(t, client, "POST", "https://"+s.Addresses()["secure"]+"/run/ns/p/c?cmd=x", "admin-token"); got.status != 503 || !strings.Contains(got.body, "podsync") {
		t.Errorf("/run: %d %q", got.status, got.body)
	}
	h.podsync.Up()
	deadline := time.Now().Add(30 * time.Second)
	for ask(t, client, "GET", base+"/pods", "").status != 200 {
		if time.Now().After(deadline) {
			t.Fatal("/pods does not come back with podsync")
		}
		time.Sleep(20 * time.Millisecond) // real sockets: no bubble
	}
}

func TestClientCertificatesAreIdentities(t *testing.T) {
	h := newHouse(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	ca, clientCert := clientCA(t, "cert-admin")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	base := "https://" + h.start(t, func(c *Config) { c.ClientCAFile = file }).Addresses()["secure"]
	if got := ask(t, httpClient(t, clientCert), "GET", base+"/pods", ""); got.status != 200 {
		t.Errorf("with a good certificate: %d %q", got.status, got.body)
	}
	_, unknown := clientCA(t, "cert-admin")
	if got := ask(t, httpClient(t, unknown), "GET", base+"/pods", ""); got.status != 401 {
		t.Errorf("with an unknown client's certificate: %d %q", got.status, got.body)
	}
	if got := ask(t, httpClient(t), "GET", base+"/pods", "admin-token"); got.status != 200 {
		t.Errorf("with a token instead: %d %q", got.status, got.body)
	}
	// The CA is replaced: the unknown client is known from the next request on.
	newCA, newCert := clientCA(t, "cert-admin")
	if err := os.WriteFile(file, newCA, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, httpClient(t, newCert), "GET", base+"/pods", ""); got.status != 200 {
		t.Errorf("after the CA was replaced: %d %q", got.status, got.body)
	}
}

func TestAnonymousIsAUserThatMayBeDenied(t *testing.T) {
	h := newHouse(t)
	base := "https://" + h.start(t, func(c *Config) { c.Anonymous = true }).Addresses()["secure"]
	got := ask(t, httpClient(t), "GET", base+"/pods", "")
	if got.status != 403 || !strings.Contains(got.body, "user=system:anonymous") {
		t.Errorf("%d %q", got.status, got.body)
	}
	if got := ask(t, httpClient(t), "GET", base+"/pods", "unknown-token"); got.status != 401 {
		t.Errorf("a bad token is taken for anonymous: %d %q", got.status, got.body)
	}
}

func TestAFollowedLogArrivesWhileItGrows(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "https://"+s.Addresses()["secure"]+"/containerLogs/ns/p/c?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer reader-token")
	res, err := httpClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	line := make([]byte, len("first\n"))
	if _, err := io.ReadFull(res.Body, line); err != nil || string(line) != "first\n" {
		t.Errorf("%q %v", line, err)
	}
	if list, err := s.server.ListListeners(ctx, &gatewayv1.ListListenersRequest{}); err != nil || list.GetListeners()[1].GetOpenSessions() != 1 {
		t.Errorf("%v %v, want one open session", list, err)
	}
}

func TestListListenersShowsPortsAndTheCertificate(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	res, err := s.server.ListListeners(t.Context(), &gatewayv1.ListListenersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range res.GetListeners() {
		names = append(names, l.GetName())
		if strings.HasSuffix(l.GetAddress(), ":0") || (l.GetCertificateNotAfter() != nil) != (l.GetName() == "secure") {
			t.Errorf("listener %v", l)
		}
	}
	if got := strings.Join(names, " "); got != "healthz secure read-only" {
		t.Errorf("listeners %q", got)
	}
}

func TestAnAddressInUseIsOneClearError(t *testing.T) {
	h := newHouse(t)
	taken := h.start(t, nil).Addresses()["healthz"]
	s, err := New(Config{NodeName: "n1", HealthzAddress: taken}, Deps{
		Metrics: prometheus.NewRegistry(), Podsync: dial(t, h.podsync), Probes: dial(t, h.probes), Stats: dial(t, h.stats), Nodestatus: dial(t, h.nodestatus), Self: dial(t, h.self),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("error %v does not name %s", err, taken)
	}
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	_, err := New(Config{SecureAddress: "here"}, Deps{})
	for _, want := range []string{"NodeName", "SecureAddress", "Metrics", "Podsync", "Nodestatus"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

// clientCA makes a CA and a client certificate of it for user.
func clientCA(t *testing.T, user string) ([]byte, tls.Certificate) {
	t.Helper()
	caKey, caDER := certificate(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	ca, err := x509.ParseCertificate(caDER)
	if err != nil {
		t.Fatal(err)
	}
	key, der := certificate(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: user}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, caKey)
	var out bytes.Buffer
	if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: caDER}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func certificate(t *testing.T, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}
