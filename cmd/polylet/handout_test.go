package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// becomes waits until a file is as it should be: inotify, so no bubble.
func becomes(t *testing.T, file, want string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		got, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(got), want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not become %q: %q, %v", file, want, got, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestAHandoutThatFollowsMissesNoChange changes a CA at a path of the user's own
// twice within its settling, then where the configuration says it is.
func TestAHandoutThatFollowsMissesNoChange(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files to other users")
	}
	base := t.TempDir()
	dir, ca := filepath.Join(base, "sock"), put(t, base+"/own/ca.crt", authority("first"))
	config := func(ca string) string {
		return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nauthentication: {x509: {clientCAFile: " + ca + "}}\n"
	}
	file := put(t, base+"/etc/config.yaml", config(ca))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cmd := newRootCommand()
	cmd.SetArgs([]string{"handout", "--follow", "--config=" + file, "--socket-dir=" + dir, "--cert-dir=" + base + "/pki", "--root-dir=" + base + "/root", "--socket-group=60900",
		"--gateway-user=60901", "--probes-user=60902", "--hostname-override=n1"})
	go func() { done <- cmd.ExecuteContext(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	copied := dir + "/gateway/client-ca.crt"
	becomes(t, copied, authority("first"))
	put(t, ca, authority("second"))
	time.Sleep(settle / 2)
	put(t, ca, authority("third"))
	becomes(t, copied, authority("third"))

	other := put(t, base+"/elsewhere/ca.crt", authority("of another place"))
	put(t, file, "not: [a configuration")
	put(t, file, config(other))
	becomes(t, copied, authority("of another place"))
	becomes(t, dir+"/probes/slice.json", other)
	put(t, other, authority("changed there"))
	becomes(t, copied, authority("changed there"))
	if args, err := os.ReadFile(dir + "/gateway/args.env"); err != nil || strings.Contains(string(args), followFlag+" ") {
		t.Errorf("the gateway's flags: %s, %v", args, err)
	}
}
