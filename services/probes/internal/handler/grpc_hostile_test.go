package handler

import (
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/services/probes/internal/probe"
)

// The frames of a server that has said hello, asks without end and never reads.
const (
	settingsFrame = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	pingFrame     = "\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping"
)

// hostile accepts connections and has serve do what it likes with each; it returns the
// address, and counts the connections that are not over.
func hostile(t *testing.T, serve func(net.Conn)) (address string, open func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	n := 0
	count := func(by int) { mu.Lock(); n += by; mu.Unlock() }
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			count(1)
			group.Go(func() { defer count(-1); defer conn.Close(); serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); group.Wait() })
	return l.Addr().String(), func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// TestAHostileGRPCServerEndsWithItsAttempt: it accepts, and reads or answers nothing, or
// asks without end.
func TestAHostileGRPCServerEndsWithItsAttempt(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"it says nothing": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"it says hello, and nothing more": func(c net.Conn) {
			_, _ = io.WriteString(c, settingsFrame)
			_, _ = io.Copy(io.Discard, c)
		},
		"it asks and never reads": func(c net.Conn) {
			pings := strings.Repeat(pingFrame, 500)
			_, err := io.WriteString(c, settingsFrame)
			for err == nil {
				_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
				_, err = io.WriteString(c, pings)
			}
		},
		"it sets and never reads": func(c net.Conn) {
			err := error(nil)
			for err == nil {
				_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
				_, err = io.WriteString(c, strings.Repeat(settingsFrame, 500))
			}
		},
	} {
		address, open := hostile(t, serve)
		handlers := New(Config{}, nil)
		target := probe.Target{PodIP: "127.0.0.1", Timeout: time.Second, Handler: probe.GRPC{Port: portOf(t, address)}}
		const probes = 8
		var group sync.WaitGroup
		runtime.GC()
		var before, during runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		for range probes {
			group.Go(func() {
				if got := handlers.Run(t.Context(), target); got.Verdict != probe.Failed {
					t.Errorf("%s: %+v", name, got)
				}
			})
		}
		time.Sleep(800 * time.Millisecond)
		runtime.GC()
		runtime.ReadMemStats(&during)
		group.Wait()
		// The server goes on for a minute; less than a second is for a machine that does nothing else.
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: an attempt of one second takes %v", name, took)
		}
		if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > probes<<20 {
			t.Errorf("%s: a probe holds %d KiB", name, grown/probes>>10)
		}
		eventually.True(t, name+": connections are open", func() bool { return open() == 0 })
	}
}
