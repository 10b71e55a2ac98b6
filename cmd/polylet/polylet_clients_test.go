package main

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/nodestatus"
	podsyncservice "github.com/polylet/polylet/services/podsync"
)

const anyKubeconfig = `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
  users: [{name: u, user: {token: t}}], clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]}`

func TestEventsHaveTheRateThatIsConfigured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(anyKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	rate := func(client kubernetes.Interface) float32 {
		limiter := client.CoreV1().RESTClient().GetRateLimiter()
		if limiter == nil {
			return -1
		}
		return limiter.QPS()
	}
	for qps, want := range map[string]float32{"3": 3, "0": -1} {
		loaded := loadedWith(t, "--kubeconfig="+path, "--event-qps="+qps, "--kube-api-qps=9")
		var node nodestatus.Deps
		var pods podsyncservice.Deps
		if err := nodestatusClients(t.Context(), loaded, nil, klog.Background(), &node); err != nil {
			t.Fatal(err)
		}
		if _, err := podsyncClients(t.Context(), loaded, nil, klog.Background(), &pods); err != nil {
			t.Fatal(err)
		}
		if rate(node.Events) != want || rate(pods.Events) != want || rate(node.Client) != 9 || rate(pods.Client) != 9 {
			t.Errorf("--event-qps=%s: nodestatus %v, podsync %v; others %v and %v", qps, rate(node.Events), rate(pods.Events), rate(node.Client), rate(pods.Client))
		}
	}
}
