package lease

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// said keeps what a Reporter is told last.
type said struct{ message atomic.Pointer[string] }

func (s *said) Set(_ string, ready bool, message string) {
	if ready {
		message = "well"
	}
	s.message.Store(&message)
}

func (s *said) last() string {
	if m := s.message.Load(); m != nil {
		return *m
	}
	return ""
}

func TestALeaseThatIsNotRenewedIsToldUntilItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Hang: hangs.Load()}
		}})
		defer api.Close()
		var health said
		k := New(Config{
			NodeName: "n1", Duration: 40 * time.Second, Client: api.Client().CoordinationV1().Leases(namespace),
			NodeUID: func() types.UID { return "" }, Health: &health,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		time.Sleep(15 * time.Second)
		if got := health.last(); got != "well" {
			t.Errorf("while it is renewed: %q", got)
		}
		hangs.Store(true)
		time.Sleep(35 * time.Second) // before the lease has run out
		if got := health.last(); !strings.Contains(got, "lease kube-node-lease/n1") || !strings.Contains(got, "it was last at") || !strings.Contains(got, "check that the apiserver runs") {
			t.Errorf("while the apiserver hangs: %q", got)
		}
		hangs.Store(false)
		time.Sleep(30 * time.Second)
		if got := health.last(); got != "well" {
			t.Errorf("once it answers again: %q", got)
		}
		cancel()
		<-done
	})
}
