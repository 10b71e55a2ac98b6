package handler

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/polylet/polylet/services/probes/internal/probe"
)

// fewFiles runs do while this process may open no file.
func fewFiles(t *testing.T, do func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	do()
}

func TestThatThisProcessHasNoFileLeftSaysNothingAboutAContainer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := portOf(t, l.Addr().String())
	if a := run(t, probe.TCPSocket{Port: port}); a.Verdict != probe.Passed {
		t.Fatalf("%+v", a)
	}
	var told []error
	h := New(Config{OnLack: func(cause error) { told = append(told, cause) }}, nil)
	answers := map[string]probe.Answer{}
	fewFiles(t, func() {
		for name, handler := range map[string]probe.Handler{
			"tcp": probe.TCPSocket{Port: port}, "http": probe.HTTPGet{Port: port, Path: "/"}, "grpc": probe.GRPC{Port: port},
		} {
			answers[name] = h.Run(t.Context(), probe.Target{PodIP: "127.0.0.1", Timeout: 5 * time.Second, Handler: handler})
		}
	})
	for name, a := range answers {
		if a.Verdict != probe.Errored {
			t.Errorf("%s: verdict %v, %q; want Errored: it counts against the container", name, a.Verdict, a.Message)
		}
	}
	if len(told) != 3 || !errors.Is(told[0], unix.EMFILE) {
		t.Errorf("told %v", told)
	}
}

func TestWhoseErrorAConnectionFailedWith(t *testing.T) {
	here := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	nowhere := &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 1} // a link that is not named
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"nobody listens", &net.OpError{Op: "dial", Addr: here, Err: unix.ECONNREFUSED}, nil},
		{"no way to it", &net.OpError{Op: "dial", Addr: here, Err: unix.EHOSTUNREACH}, nil},
		{"no file of the node", &net.OpError{Op: "dial", Addr: here, Err: unix.ENFILE}, unix.ENFILE},
		{"no memory", &net.OpError{Op: "dial", Addr: here, Err: unix.ENOBUFS}, unix.ENOBUFS},
		{"no port", &net.OpError{Op: "dial", Addr: here, Err: unix.EADDRNOTAVAIL}, unix.EADDRNOTAVAIL},
		{"an address that the node cannot speak to", &net.OpError{Op: "dial", Addr: nowhere, Err: unix.EADDRNOTAVAIL}, nil},
		{"while the answer is read", &net.OpError{Op: "read", Addr: here, Err: unix.ENOBUFS}, nil},
	} {
		if got := lack(c.err); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
