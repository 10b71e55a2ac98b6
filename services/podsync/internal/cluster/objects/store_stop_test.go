package objects

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestRunEndsAtOnceWhileTheApiserverRefusesItsWatches(t *testing.T) {
	for name, cfg := range map[string]fakeapiserver.Config{
		"429": {Faults: func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Status: 429} }},
		"500": {Faults: func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Status: 500} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fakeapiserver.New(cfg)
				defer server.Close()
				store := New(Config{NodeName: "n"}, Deps{Client: server.Client()})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _ = store.Run(ctx) }()
				time.Sleep(5 * time.Minute) // its back-off has grown by now
				began := time.Now()
				cancel()
				<-done
				if took := time.Since(began); took > 0 {
					t.Errorf("Run ended %v after its context", took)
				}
			})
		})
	}
}
