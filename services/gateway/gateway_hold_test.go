package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

// client is one that can leave.
type client struct {
	t     *testing.T
	leave func()
	input *io.PipeWriter
}

// connect opens a session and waits for the command's first byte.
func connect(t *testing.T, s *Service, transport, command string) client {
	t.Helper()
	query := url.Values{"command": {command}, "output": {"1"}, "input": {"1"}}
	executor := executors(t, sessionURL(s, "/exec/ns/p/c", query), "admin-token")[transport]
	ctx, cancel := context.WithCancel(t.Context())
	in, w := io.Pipe()
	back, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out}) }()
	if command == "cat" {
		fmt.Fprint(w, "x")
	}
	if _, err := io.ReadFull(back, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return client{t: t, input: w, leave: func() {
		cancel()
		back.Close()
		w.Close()
		<-done // it was cancelled
	}}
}

func (h *house) tells(t *testing.T, what string, want ...string) {
	t.Helper()
	eventually.True(t, what, func() bool { return slices.Equal(h.fake.told(), want) })
}

func TestPodsyncIsToldWhoLeftASession(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	for _, transport := range []string{"SPDY", "WebSocket"} {
		for _, command := range []string{"silent", "chatter"} {
			c := connect(t, s, transport, command)
			h.tells(t, transport+": the session is held", "open ["+command+"]")
			c.leave()
			h.tells(t, transport+": the client has left "+command, "open ["+command+"]", "left")
			h.fake.forget()
		}
		for command, query := range map[string]url.Values{
			"end": {"command": {"end"}, "output": {"1"}}, "fail": {"command": {"fail"}, "output": {"1"}, "error": {"1"}},
		} {
			var out, failed bytes.Buffer
			options := remotecommand.StreamOptions{Stdout: &out}
			if query.Get("error") != "" {
				options.Stderr = &failed
			}
			_ = executors(t, sessionURL(s, "/exec/ns/p/c", query), "admin-token")[transport].StreamWithContext(t.Context(), options)
			// A client that is told the end closes its connection as fast as it can,
			// and may be faster than the runtime.
			eventually.True(t, transport+": the command has ended: "+command, func() bool {
				told := h.fake.told()
				return len(told) == 2 && told[0] == "open ["+command+"]" && (told[1] == "ended" || told[1] == "left")
			})
			h.fake.forget()
		}
	}
	eventually.True(t, "it did not come true that nobody holds what is over", func() bool { return openSessions(t, s) == 0 })
}

func TestASessionIsHeldAcrossPodsyncsRestart(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	for _, transport := range []string{"SPDY", "WebSocket"} {
		c := connect(t, s, transport, "silent")
		h.podsync.Down()
		h.tells(t, "podsync is gone", "open [silent]", "broken")
		h.podsync.Up()
		h.tells(t, "the next podsync is told", "open [silent]", "broken", "resume id [silent] 4711")
		if n := openSessions(t, s); n != 1 {
			t.Errorf("%d sessions go on", n)
		}
		c.leave()
		h.tells(t, "and that the client left", "open [silent]", "broken", "resume id [silent] 4711", "left")
		h.fake.forget()

		// It leaves while podsync is away.
		c = connect(t, s, transport, "silent")
		h.podsync.Down()
		c.leave()
		eventually.True(t, "it did not come true that the session is over", func() bool { return openSessions(t, s) == 0 })
		h.podsync.Up()
		h.tells(t, "the next podsync is told at once", "open [silent]", "broken", "resume id [silent] 4711", "left")
		h.fake.forget()
	}
}

func TestASessionThatEndsWhilePodsyncIsAwayIsNotHeldForEver(t *testing.T) {
	h := newHouse(t)
	s := h.start(t, nil)
	c := connect(t, s, "SPDY", "cat")
	h.podsync.Down()
	c.input.Close() // cat ends
	eventually.True(t, "it did not come true that the session is over", func() bool { return openSessions(t, s) == 0 })
	h.podsync.Up()
	eventually.True(t, "it did not come true that nobody holds it", func() bool {
		all := make([]byte, 1<<20)
		return !strings.Contains(string(all[:runtime.Stack(all, true)]), "peer.(*hold).keep")
	})
	c.leave()
	// It may count as left, if its client was faster than the runtime to close.
	if told := h.fake.told(); slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "nonsense") }) {
		t.Errorf("podsync was told %v", told)
	}
}

func TestAnOlderPodsyncOpensSessionsWithoutHoldingThem(t *testing.T) {
	h := newHouse(t)
	h.fake.old = true
	s := h.start(t, nil)
	for _, transport := range []string{"SPDY", "WebSocket"} {
		c := connect(t, s, transport, "silent")
		c.leave()
		eventually.True(t, "it did not come true that the session is over", func() bool { return openSessions(t, s) == 0 })
	}
	if told := h.fake.told(); len(told) != 0 {
		t.Errorf("it was told %v", told)
	}
}
