package kubeclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const template = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "SERVER", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {tokenFile: "TOKEN"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func TestRequestsCarryEncodingIdentityAndToken(t *testing.T) {
	seen := make(chan http.Header, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		http.Error(w, "no", http.StatusNotFound)
	}))
	defer server.Close()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	path := filepath.Join(dir, "kubeconfig")
	content := strings.NewReplacer("SERVER", server.URL, "TOKEN", token).Replace(template)
	for file, text := range map[string]string{token: "secret", path: content} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Follow(Source{Kubeconfig: path}, logr.Discard()).Config(50, 100, "polylet-test/1")
	client := kubernetes.NewForConfigOrDie(cfg)
	if cfg.QPS != 50 || cfg.Burst != 100 {
		t.Errorf("rate %v %v", cfg.QPS, cfg.Burst)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{}); err == nil {
		t.Fatal("a 404 is no error")
	}
	h := <-seen
	if h.Get("User-Agent") != "polylet-test/1" || h.Get("Accept") != accept || h.Get("Authorization") != "Bearer secret" {
		t.Errorf("headers %v", h)
	}
}

func TestContentTypeAndRateAreAsConfigured(t *testing.T) {
	dir := t.TempDir()
	path, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	content := strings.NewReplacer("SERVER", "https://127.0.0.1:1", "TOKEN", token).Replace(template)
	for file, text := range map[string]string{token: "secret", path: content} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for given, want := range map[string][2]string{
		"": {protobuf, accept}, protobuf: {protobuf, accept}, "application/json": {"application/json", ""},
	} {
		cfg := Follow(Source{Kubeconfig: path}, logr.Discard()).Config(1, 1, "x", ContentType(given))
		if cfg.ContentType != want[0] || cfg.AcceptContentTypes != want[1] {
			t.Errorf("%q: sent as %q, taken as %q", given, cfg.ContentType, cfg.AcceptContentTypes)
		}
		rate, err := NewRate(7, 9)
		if err != nil {
			t.Fatal(err)
		}
		if rated := Rated(cfg, rate); rated.RateLimiter.QPS() != 7 || rated.ContentType != want[0] || cfg.RateLimiter != nil {
			t.Errorf("%q: rate %v", given, rated.RateLimiter.QPS())
		}
	}
}
