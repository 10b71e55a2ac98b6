package podsync

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

func TestThatTheRuntimeDoesNotTakeThePodNetworkIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refusing atomic.Bool
		refusing.Store(true)
		rt := fakecri.New(fakecri.Config{Faults: func(_ context.Context, method string, _ any) fakecri.Fault {
			if method == "UpdateRuntimeConfig" && refusing.Load() {
				return fakecri.Fault{Err: status.Error(codes.Internal, "no network plugin")}
			}
			return fakecri.Fault{}
		}})
		defer rt.Close()
		conn, err := rt.Dial(t.Context(), cri.DialOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		dir := t.TempDir()
		cfg := bare(dir)
		cfg.Node.Standalone, cfg.Node.PodCIDR, cfg.StaticPods.Path = true, "10.1.0.0/24", filepath.Join(dir, "manifests")
		s, err := New(cfg, faked(conn))
		if err != nil {
			t.Fatal(err)
		}
		var lines atomic.Int32
		ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), funcr.New(func(_, line string) {
			if strings.Contains(line, "the pod network") {
				lines.Add(1)
			}
		}, funcr.Options{})))
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(time.Hour)
		if got := lines.Load(); got != 1 {
			t.Errorf("%d lines in an hour", got)
		}
		refusing.Store(false)
		time.Sleep(time.Minute)
		if rt.PodCIDR() != "10.1.0.0/24" {
			t.Errorf("the runtime knows %q", rt.PodCIDR())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
