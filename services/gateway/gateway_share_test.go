package gateway

import (
	"fmt"
	"net/http"
	"testing"
)

// TestLogsOfTheNodeThatNobodyReadsLeaveStreamsToPods: who may read the node's logs, and
// does not, keeps each as long as a stream may last.
func TestLogsOfTheNodeThatNobodyReadsLeaveStreamsToPods(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	read := func() string {
		conn := knock(t, s.Addresses()["secure"], "GET /logs/waits HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n\r\n")
		var version, status string
		if _, err := fmt.Fscan(conn, &version, &status); err != nil {
			t.Fatal(err)
		}
		return status
	}
	for i := range streamsOfOne {
		if status := read(); status != "200" {
			t.Fatalf("log %d: %s", i, status)
		}
	}
	if status := read(); status != "429" {
		t.Errorf("one more: %s", status)
	}
	if got := ask(t, httpClient(t), http.MethodGet, "https://"+s.Addresses()["secure"]+"/containerLogs/ns/p/c", "admin-token"); got.status != http.StatusOK {
		t.Errorf("a container's log beside them: %d", got.status)
	}
}

func TestOneNamespaceDoesNotHoldAllStreams(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	base := "https://" + s.Addresses()["secure"]
	follow := func() string {
		conn := knock(t, s.Addresses()["secure"], "GET /containerLogs/ns/p/c?follow=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n\r\n")
		var version, status string
		if _, err := fmt.Fscan(conn, &version, &status); err != nil {
			t.Fatal(err)
		}
		return status
	}
	for i := range streamsOfOne {
		if status := follow(); status != "200" {
			t.Fatalf("stream %d: %s", i, status)
		}
	}
	if status := follow(); status != "429" {
		t.Errorf("one more of the namespace: %s", status)
	}
	for _, path := range []string{"/containerLogs/other/p/c", "/logs/"} {
		if got := ask(t, httpClient(t), http.MethodGet, base+path, "admin-token"); got.status == http.StatusTooManyRequests {
			t.Errorf("%s beside them: %d", path, got.status)
		}
	}
}
