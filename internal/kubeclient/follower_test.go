package kubeclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/internal/testkit/selfsigned"
)

// made makes a self-signed client certificate.
func made(t *testing.T, name string, end time.Time) *nodecert.Pair {
	t.Helper()
	p, err := nodecert.Parse(selfsigned.PEM(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-48 * time.Hour), NotAfter: end}))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// apiserver notes who asks, on which connection, and serves watches until it is told
// to stop or whoever watches has left.
type apiserver struct {
	*httptest.Server
	mu          sync.Mutex
	names       []string
	connections map[string]net.Conn
	refused     string
}

func serve(t *testing.T) *apiserver {
	a := &apiserver{connections: map[string]net.Conn{}}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		a.mu.Lock()
		a.names = append(a.names, name)
		refuse := name == a.refused
		a.mu.Unlock()
		if refuse {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		w.Header().Set("Path", r.URL.Path)
		_, _ = io.WriteString(w, name+"\n")
		if isWatch(r) || r.URL.Query().Has("slow") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	a.EnableHTTP2 = true
	a.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	a.Config.ConnState = func(c net.Conn, s http.ConnState) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if s == http.StateClosed {
			delete(a.connections, c.RemoteAddr().String())
		} else {
			a.connections[c.RemoteAddr().String()] = c
		}
	}
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

// source is a kubeconfig for it that names a node's certificate, which is "first" now.
func (a *apiserver) source(t *testing.T, end time.Time) Source {
	t.Helper()
	dir := t.TempDir()
	s := Source{Kubeconfig: filepath.Join(dir, "kubelet.conf"), Store: nodecert.Store{Dir: dir, Prefix: nodecert.Client}}
	a.write(t, s.Kubeconfig, api.AuthInfo{ClientCertificate: s.Store.CurrentPath(), ClientKey: s.Store.CurrentPath()})
	if err := s.Store.Write(made(t, "first", end), time.Now()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (a *apiserver) open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.connections)
}

func (a *apiserver) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
}

// write writes a kubeconfig.
func (a *apiserver) write(t *testing.T, path string, user api.AuthInfo) {
	t.Helper()
	cfg := api.NewConfig()
	cfg.Clusters["c"] = &api.Cluster{Server: a.URL, CertificateAuthorityData: a.ca()}
	cfg.AuthInfos["u"], cfg.Contexts["x"], cfg.CurrentContext = &user, &api.Context{Cluster: "c", AuthInfo: "u"}, "x"
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
}

// client is one on a follower's configuration.
func client(t *testing.T, f *Follower) *http.Client {
	t.Helper()
	c, err := rest.HTTPClientFor(f.Config(0, 0, "test"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestANewCertificateIsShownFromTheNextRequestOnAndNoRequestFails(t *testing.T) {
	a := serve(t)
	end := time.Now().Add(time.Hour)
	s := a.source(t, end)
	f := Follow(s, logr.Discard())
	c := client(t, f)
	if got := ask(t, c, "https://whatever/x"); got != "first" {
		t.Fatalf("asked as %q", got)
	}
	watch, err := c.Get("https://whatever/x?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	slow, err := c.Get("https://whatever/x?slow")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Store.Write(made(t, "second", end.Add(time.Hour)), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if !f.Look() || f.Look() {
		t.Error("a new certificate is seen once")
	}
	if got := ask(t, c, "https://whatever/x"); got != "second" {
		t.Errorf("asked as %q", got)
	}
	if text, err := io.ReadAll(watch.Body); err != nil || string(text) != "first\n" {
		t.Errorf("the watch gave %q and ended with %v, want its end in order", text, err)
	}
	if a.open() != 2 {
		t.Errorf("%d connections: a request under way needs the old one", a.open())
	}
	if _, err := slow.Body.Read(make([]byte, 6)); err != nil {
		t.Errorf("a request under way: %v", err)
	}
	_, _ = watch.Body.Close(), slow.Body.Close()
	eventually.True(t, "connections stay open", func() bool { return a.open() <= 1 })
	if _, valid := f.Valid(); !valid.Equal(end.Add(time.Hour).Truncate(time.Second)) {
		t.Errorf("ends %v", valid)
	}
}

func TestACertificateThatIsRefusedIsLookedUpAgainBeforeTheRequestFails(t *testing.T) {
	a := serve(t)
	s := a.source(t, time.Now().Add(time.Hour))
	c := client(t, Follow(s, logr.Discard()))
	if err := s.Store.Write(made(t, "second", time.Now().Add(time.Hour)), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	a.refused = "first"
	resp, err := c.Post("https://whatever/x", "text/plain", strings.NewReader("body"))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()
	a.refused = "second" // and nothing newer is there
	if resp, err = c.Get("https://whatever/x"); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

func TestRequestsWaitForACredentialAndGoOutWhenItComes(t *testing.T) {
	a := serve(t)
	dir := t.TempDir()
	s := Source{Kubeconfig: filepath.Join(dir, "etc", "kubelet.conf"), Bootstrap: filepath.Join(dir, "bootstrap.conf"), Store: nodecert.Store{Dir: dir, Prefix: nodecert.Client}}
	f := Follow(s, logr.Discard())
	c := client(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://whatever/x", http.NoBody)
	if _, err := c.Do(req); !errors.Is(err, ErrNoCredential) || !strings.Contains(err.Error(), s.Kubeconfig) || !strings.Contains(err.Error(), "kubeadm join") {
		t.Errorf("with no files at all: %v", err)
	}
	answer := make(chan string)
	go func() {
		resp, err := c.Get("https://whatever/x")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answer <- strings.TrimSpace(string(text))
	}()
	a.write(t, s.Bootstrap, api.AuthInfo{Token: "abc.secret"})
	f.Look()
	if host := Follow(s, logr.Discard()).Config(0, 0, "test").Host; host != a.URL {
		t.Errorf("errors and metrics name %s", host)
	}
	if p := f.Credential().Problem; !strings.Contains(p, "nodestatus asks for one with bootstrap kubeconfig "+s.Bootstrap) || strings.Contains(p, "secret") {
		t.Errorf("with a bootstrap kubeconfig: %s", p)
	}
	if err := s.Store.Write(made(t, "joined", time.Now().Add(time.Hour)), time.Now()); err != nil {
		t.Fatal(err)
	}
	f.Look()
	if got := <-answer; got != "joined" {
		t.Errorf("the request that waited got %q", got)
	}
	// kubeadm join takes the bootstrap kubeconfig away when there is a kubeconfig.
	if written, err := WriteKubeconfig(s, time.Now()); !written || err != nil {
		t.Fatalf("the kubeconfig: %v, %v", written, err)
	}
	if err := os.Remove(s.Bootstrap); err != nil {
		t.Fatal(err)
	}
	if f.Look() {
		t.Error("the same apiserver and certificate count as others")
	}
	if again, err := WriteKubeconfig(s, time.Now()); again || err != nil {
		t.Errorf("a good kubeconfig is written again: %v, %v", again, err)
	}
	if got := ask(t, c, "https://whatever/x"); got != "joined" || f.Credential().Problem != "" {
		t.Errorf("asked as %q, %s", got, f.Credential().Problem)
	}
	kubelets, err := clientcmd.LoadFromFile(s.Kubeconfig)
	if err != nil || kubelets.CurrentContext != "default-context" || kubelets.AuthInfos["default-auth"].ClientCertificate != s.Store.CurrentPath() || kubelets.Clusters["default-cluster"].Server != a.URL {
		t.Errorf("the kubeconfig says %+v, %v", kubelets, err)
	}
	if info, err := os.Stat(s.Kubeconfig); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode: %v, %v", info.Mode(), err)
	}
}

func TestAnApiserverThatRefusesAGoodCertificateIsNamedAfterAWhile(t *testing.T) {
	a := serve(t)
	s := a.source(t, time.Now().Add(time.Hour))
	f := Follow(s, logr.Discard())
	c := client(t, f)
	a.refused = "first"
	_ = ask(t, c, "https://whatever/x")
	if f.Refused() {
		t.Error("the first refusal counts")
	}
	g, _ := f.now()
	since := time.Now().Add(-2 * refusedFor) // as if it had gone on
	g.refused.Store(&since)
	_ = ask(t, c, "https://whatever/x")
	if text := g.refusal(); !f.Refused() || !strings.Contains(text, s.Store.CurrentPath()) || !strings.Contains(text, "--client-ca-file") {
		t.Errorf("refused: %v, %q", f.Refused(), text)
	}
	a.refused = ""
	if got := ask(t, c, "https://whatever/x"); got != "first" || f.Refused() || g.refusal() != "" {
		t.Errorf("asked as %q; still refused: %q", got, g.refusal())
	}
}

func TestTheServersPathIsKept(t *testing.T) {
	a := serve(t)
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	a.URL += "/k8s/clusters/c-1/"
	a.write(t, path, api.AuthInfo{Token: "x"})
	cfg := Follow(Source{Kubeconfig: path}, logr.Discard()).Config(0, 0, "test")
	if !strings.HasPrefix(a.URL, cfg.Host) {
		t.Errorf("metrics and errors name %q", cfg.Host)
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Get(cfg.Host + "/api/v1/nodes/x")
	if err != nil || resp.Header.Get("Path") != "/k8s/clusters/c-1/api/v1/nodes/x" {
		t.Fatalf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

func TestAnApiserverOfAnotherAuthorityIsNamedWithWhatToDo(t *testing.T) {
	a := serve(t)
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	cfg := api.NewConfig()
	cfg.Clusters["c"] = &api.Cluster{Server: a.URL, CertificateAuthorityData: made(t, "another", time.Now().Add(time.Hour)).Cert}
	cfg.AuthInfos["u"], cfg.Contexts["x"], cfg.CurrentContext = &api.AuthInfo{Token: "x"}, &api.Context{Cluster: "c", AuthInfo: "u"}, "x"
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	f := Follow(Source{Kubeconfig: path}, logr.Discard())
	c := client(t, f)
	if _, err := c.Get("https://whatever/"); err == nil || !strings.Contains(err.Error(), "certificate-authority-data of the kubeconfig "+path) {
		t.Errorf("%v", err)
	}
	a.write(t, path, api.AuthInfo{Token: "x"}) // the authority is corrected
	f.Look()
	if got := ask(t, c, "https://whatever/"); got != "nobody" {
		t.Errorf("after it was corrected: %q", got)
	}
}

func TestWhatIsMissingIsNamedAndWhatWorksGoesOn(t *testing.T) {
	a := serve(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	a.write(t, path("gone"), api.AuthInfo{ClientCertificate: path("nobody.crt"), ClientKey: path("nobody.key")})
	a.write(t, path("inline"), api.AuthInfo{ClientCertificateData: []byte("x"), ClientKeyData: []byte("secret")})
	for name, text := range map[string]string{"broken": "a: [", "empty": ""} {
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		source Source
		want   []string
	}{
		"no kubeconfig":       {Source{Kubeconfig: path("none")}, []string{"there is no kubeconfig " + path("none"), "correct --kubeconfig"}},
		"a broken one":        {Source{Kubeconfig: path("broken")}, []string{path("broken"), "cannot be used"}},
		"an empty one":        {Source{Kubeconfig: path("empty")}, []string{path("empty"), "cannot be used"}},
		"files that are gone": {Source{Kubeconfig: path("gone")}, []string{path("gone"), path("nobody.crt"), "kubeadm join"}},
		"no certificate":      {Source{Kubeconfig: path("inline")}, []string{path("inline"), "kubeadm join"}},
		"no bootstrap":        {Source{Kubeconfig: path("gone"), Bootstrap: path("none")}, []string{path("nobody.crt"), "there is no bootstrap kubeconfig " + path("none")}},
		"a broken bootstrap":  {Source{Kubeconfig: path("none"), Bootstrap: path("broken")}, []string{path("none"), path("broken"), "correct it"}},
	} {
		got := Follow(tc.source, logr.Discard()).Credential()
		for _, want := range tc.want {
			if got.Config != nil || !strings.Contains(got.Problem, want) || strings.Contains(got.Problem, "secret") {
				t.Errorf("%s: %q does not say %q", name, got.Problem, want)
			}
		}
	}
	working := path("working")
	a.write(t, working, api.AuthInfo{Token: "x"})
	f := Follow(Source{Kubeconfig: working}, logr.Discard())
	c := client(t, f)
	if err := os.Remove(working); err != nil {
		t.Fatal(err)
	}
	f.Look()
	if got := ask(t, c, "https://whatever/"); got != "nobody" || !strings.Contains(f.Credential().Problem, working) {
		t.Errorf("with the kubeconfig gone: %q, %q", got, f.Credential().Problem)
	}
}

func TestOfTwoCertificatesTheBetterIsShown(t *testing.T) {
	now := time.Now()
	early, late := made(t, "early", now.Add(-2*time.Hour)), made(t, "late", now.Add(-time.Hour))
	good, other := made(t, "good", now.Add(time.Hour)), made(t, "other", now.Add(2*time.Hour))
	for name, tc := range map[string]struct{ stored, own, want *nodecert.Pair }{
		"the one that nodestatus got":     {good, other, good},
		"its own where none was got":      {nil, own(good), good},
		"its own where the other ended":   {late, good, good},
		"the last to end where both have": {early, late, late},
		"the stored, last to end":         {late, early, late},
		"one that has ended alone":        {late, nil, late},
	} {
		cfg := &rest.Config{Host: "https://a", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}}
		got := choose(readings{kubeconfig: cfg, stored: tc.stored, own: tc.own}, now)
		if got.Pair != tc.want || string(got.Config.KeyData) != string(tc.want.Key) {
			t.Errorf("%s: %v", name, got.Pair.Leaf.Subject)
		}
	}
}

func own(p *nodecert.Pair) *nodecert.Pair { return p }

func TestWhatIsMissingIsToldUntilItIsThere(t *testing.T) {
	a := serve(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "kubelet.conf")
	a.write(t, path+".later", api.AuthInfo{Token: "x"})
	synctest.Test(t, func(t *testing.T) {
		f := Follow(Source{Kubeconfig: path}, logr.Discard())
		tracker := health.NewTracker(logr.Discard())
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { defer close(done); _ = f.Run(ctx, tracker) }()
		synctest.Wait()
		if d := tracker.Dependencies(); len(d) != 1 || d[0].Ready || !strings.Contains(d[0].Message, path) {
			t.Errorf("%+v", d)
		}
		if err := os.Rename(path+".later", path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookAgain + time.Second)
		if ready, missing := tracker.Ready(); !ready {
			t.Errorf("missing %v", missing)
		}
		cancel()
		<-done
	})
}
