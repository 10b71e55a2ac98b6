package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
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

// answering is a nodestatus that asks the apiserver.
type answering struct {
	nodestatusv1.UnimplementedNodeStatusServiceServer
	says string
}

func (a *answering) AskApiserver(context.Context, *nodestatusv1.AskApiserverRequest) (*nodestatusv1.AskApiserverResponse, error) {
	return &nodestatusv1.AskApiserverResponse{Error: a.says}, nil
}

func TestAnOwnerWithoutANetworkHasNodestatusAskTheApiserver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the server has to be root's")
	}
	dir, err := os.MkdirTemp("", "ask") // t.TempDir's is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	kubeconfig := written(t, "kubeconfig", "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n")
	l := &live{node: &nodeRun{loaded: load(t, "--hostname-override=n1", "--socket-dir="+dir)}}
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return l.asksApiserver(kubeconfig)(ctx)
	}
	if err := ask(); err == nil {
		t.Error("nobody answers, and it is said that the apiserver does")
	}
	sock, err := net.Listen("unix", filepath.Join(dir, "nodestatus.sock"))
	if err != nil {
		t.Fatal(err)
	}
	peer := &answering{}
	server := grpc.NewServer()
	nodestatusv1.RegisterNodeStatusServiceServer(server, peer)
	go func() { _ = server.Serve(sock) }() // ends with Stop
	defer server.Stop()
	if err := ask(); err != nil {
		t.Errorf("nodestatus reaches it: %v", err)
	}
	peer.says = "no route to host"
	if err := ask(); err == nil || !strings.Contains(err.Error(), "by nodestatus: no route to host") {
		t.Errorf("nodestatus does not: %v", err)
	}
}
