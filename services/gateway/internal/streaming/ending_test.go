package streaming

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// taken is an answer whose connection can be taken over, with something read
// already.
type taken struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (t taken) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return t.conn, bufio.NewReadWriter(bufio.NewReader(t.conn), bufio.NewWriter(t.conn)), nil
}

func TestTheFirstSideToGoIsNoted(t *testing.T) {
	type sides struct{ client, runtime, clientsEnd, runtimesEnd net.Conn }
	read := func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) } // whatever comes
	say := func(from, to net.Conn) {
		go func() { _, _ = from.Write([]byte("x")) }()
		read(to)
	}
	for name, c := range map[string]struct {
		happens func(sides)
		left    bool
	}{
		"nothing":                          {func(sides) {}, false},
		"the client's connection breaks":   {func(s sides) { s.clientsEnd.Close(); read(s.client) }, true},
		"it cannot be written to":          {func(s sides) { s.clientsEnd.Close(); _, _ = s.client.Write([]byte("x")) }, true},
		"the runtime ends":                 {func(s sides) { say(s.runtimesEnd, s.runtime); s.runtimesEnd.Close(); read(s.runtime) }, false},
		"the runtime, and then the client": {func(s sides) { s.runtimesEnd.Close(); read(s.runtime); s.clientsEnd.Close(); read(s.client) }, false},
		"the client, and then the runtime": {func(s sides) { s.clientsEnd.Close(); read(s.client); s.runtimesEnd.Close(); read(s.runtime) }, true},
		"the client says the end":          {func(s sides) { say(s.clientsEnd, s.client); s.runtimesEnd.Close(); read(s.runtime) }, true},
		"the client spoke, and then a command": {func(s sides) {
			say(s.clientsEnd, s.client)
			say(s.runtimesEnd, s.runtime)
			s.runtimesEnd.Close()
			read(s.runtime)
		}, false},
		"the WebSocket is closed by its client": {func(s sides) { s.client.Close(); s.runtime.Close() }, true},
		"the session is closed from the inside": {func(s sides) { s.runtime.Close(); s.client.Close() }, false},
	} {
		var told []bool
		e := &ending{tell: func(left bool) { told = append(told, left) }}
		ours, clientsEnd := net.Pipe()
		w, r, cancel := e.watch(taken{httptest.NewRecorder(), ours}, httptest.NewRequest(http.MethodGet, "/", nil))
		client, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Fatal(err)
		}
		inner, runtimesEnd := net.Pipe()
		c.happens(sides{client, runtimeSide{inner, e}, clientsEnd, runtimesEnd})
		if ended := r.Context().Err() != nil; ended != c.left {
			t.Errorf("%s: the request has ended: %v", name, ended)
		}
		e.over()
		if !slices.Equal(told, []bool{c.left}) {
			t.Errorf("%s: told %v, want %v once", name, told, c.left)
		}
		cancel()
		for _, conn := range []net.Conn{ours, clientsEnd, inner, runtimesEnd} {
			conn.Close()
		}
	}
}

func TestWhatWasReadBeforeAConnectionIsTakenOverIsKept(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	go func() { _, _ = theirs.Write([]byte("early late")) }()
	early := bufio.NewReader(ours)
	if _, err := early.Peek(1); err != nil {
		t.Fatal(err)
	}
	e := &ending{cancel: func() {}}
	w := watched{readEarly{httptest.NewRecorder(), ours, early}, e}
	_, buffered, err := w.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("early late"))
	if _, err := io.ReadFull(buffered, got); err != nil || string(got) != "early late" {
		t.Errorf("%q, %v", got, err)
	}
	theirs.Close()
	if _, err := buffered.ReadByte(); err == nil || !e.clientLeft {
		t.Errorf("the end of the client is not noted: %v", err)
	}
}

type readEarly struct {
	*httptest.ResponseRecorder
	conn  net.Conn
	early *bufio.Reader
}

func (r readEarly) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return r.conn, bufio.NewReadWriter(r.early, bufio.NewWriter(r.conn)), nil
}
