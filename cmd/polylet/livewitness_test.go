package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

func TestAnyAnswerOfTheApiserverIsOneAndNoCredentialIsSent(t *testing.T) {
	if asksApiserver("") != nil {
		t.Error("a node without a kubeconfig has an apiserver")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Path != "/version" {
			t.Errorf("asked for %s with %q", r.URL, r.Header.Get("Authorization"))
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	ask := asksApiserver(path)
	if ask(t.Context()) == nil {
		t.Error("a kubeconfig that is not there leads to one")
	}
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
  users: [{name: u, user: {token: t}}], clusters: [{name: c, cluster: {server: %q}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
	server.Close()
	if ask(t.Context()) == nil {
		t.Error("one that is away answers")
	}
}
