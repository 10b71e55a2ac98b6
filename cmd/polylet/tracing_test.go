package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEveryProcessTracesAsConfigured(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(head+"tracing: {endpoint: 'collector:4317', samplingRatePerMillion: 7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := traced(loadedWith(t, "--config="+path)); got == nil || got.Endpoint != "collector:4317" || got.SamplingRatePerMillion != 7 {
		t.Errorf("tracing %+v", got)
	}
	if got := traced(loadedWith(t)); got != nil {
		t.Errorf("nobody asked for tracing and it is %+v", got)
	}
}
