package hook

import (
	"fmt"
	"net"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/polylet/polylet/internal/testkit/kernelconns"
)

// TestOfAHooksServerThatClosesNothingTheKernelKeepsNothing: else there would be its
// connection for another minute.
func TestOfAHooksServerThatClosesNothingTheKernelKeepsNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { conn.Close() })
		if n, _ := conn.Read(make([]byte, 4096)); n > 0 {
			_, _ = fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port                                                                          //nolint:forcetypeassert // it is one of TCP
	h := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt32(int32(port))}} //nolint:gosec // a port
	if err := New(Deps{}).Run(t.Context(), Target{Container: &v1.Container{}}, h); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(50 * time.Second)
	for kernelconns.To(t, port) {
		if time.Now().After(end) {
			t.Fatal("50 seconds later there is a connection")
		}
		time.Sleep(50 * time.Millisecond)
	}
}
