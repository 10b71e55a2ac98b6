package event

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// A load balancer answers 502 or 503 while the apiserver is away; a broken webhook is
// the apiserver's 500.
func TestEventsOutliveAnOutageThatIsAnswered(t *testing.T) {
	for code, kept := range map[int]bool{
		http.StatusBadGateway: true, http.StatusServiceUnavailable: true, http.StatusGatewayTimeout: true, http.StatusTooManyRequests: true,
		http.StatusInternalServerError: false, http.StatusForbidden: false,
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var away atomic.Bool
				away.Store(true)
				server := fakeapiserver.New(fakeapiserver.Config{Seed: 1, Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
					if away.Load() {
						return fakeapiserver.Fault{Status: code}
					}
					return fakeapiserver.Fault{}
				}})
				defer server.Close()
				r := New(Config{NodeName: "n"}, Deps{Client: server.Client()})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				time.Sleep(time.Millisecond)
				r.Container(testPod(), "c", v1.EventTypeWarning, "BackOff", "while nobody is there")
				time.Sleep(time.Minute)
				away.Store(false)
				time.Sleep(time.Minute)
				if got := server.Events(); len(got) == 1 != kept {
					t.Errorf("answered with %d, %d events came after it, kept is to be %v", code, len(got), kept)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				synctest.Wait()
			})
		})
	}
}
