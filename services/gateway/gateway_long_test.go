package gateway

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFewStreamsWithLongRequestsAreOpenAtOnce: who may exec into one pod may ask for
// hundreds of commands as long as the apiserver lets them be, and of each its session
// holds more than a megabyte.
func TestFewStreamsWithLongRequestsAreOpenAtOnce(t *testing.T) {
	h := newHouse(t)
	ca, clientCert := clientCA(t, "cert-admin")
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s := h.start(t, func(c *Config) { c.ClientCAFile = file })
	open := func(query, header string) int {
		conn := knock(t, s.Addresses()["secure"], "GET /containerLogs/ns/p/c?follow=1"+query+" HTTP/1.1\r\nHost: x\r\n"+header+"\r\n", clientCert)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	long := strings.Repeat("%78", longRequest/3)
	for i := range longOfOne {
		query, header := "&x="+long, ""
		if i%2 == 1 {
			query, header = "", "X-Long: "+long+"\r\n"
		}
		if got := open(query, header); got != http.StatusOK {
			t.Fatalf("stream %d: %d", i, got)
		}
	}
	if got := open("&x="+long, ""); got != http.StatusTooManyRequests {
		t.Errorf("one more with a long path: %d", got)
	}
	if got := open("", "X-Long: "+long+"\r\n"); got != http.StatusTooManyRequests {
		t.Errorf("one more with a long header: %d", got)
	}
	if got := open("", ""); got != http.StatusOK {
		t.Errorf("a usual one beside them: %d", got)
	}
}
