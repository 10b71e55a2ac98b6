package csi

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/contain"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// panicsOnce is a Mounter that panics once when it is armed.
type panicsOnce struct {
	mount.Mounter
	armed atomic.Bool
}

func (p *panicsOnce) Mounted(path string) (bool, error) {
	if p.armed.CompareAndSwap(true, false) {
		panic("one panic")
	}
	return p.Mounter.Mounted(path)
}

// contained does what package volume contains.
func contained(t *testing.T, do func(context.Context) error) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	defer contain.Panic(ctx, "it", &err)
	return do(ctx)
}

func TestAPanicAtAPodsEndDoesNotKeepTheVolumesTurn(t *testing.T) {
	for name, is := range map[string]struct {
		setUp func(b *bench) error
		end   func(ctx context.Context, b *bench) error
	}{
		"a filesystem": {
			func(b *bench) error { return b.setUp(t, "uid-1") },
			func(ctx context.Context, b *bench) error {
				return b.Teardown(ctx, volume.Remains{UID: "uid-1", Name: "pv", Dir: b.pvDir("uid-1")})
			},
		},
		"a device": {
			func(b *bench) error { return b.mapDeviceOf(t, "uid-1") },
			func(ctx context.Context, b *bench) error { return b.Unmap(ctx, b.deviceRemains("uid-1")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newStaging(t, nil)
			if err := is.setUp(b); err != nil {
				t.Fatal(err)
			}
			p := &panicsOnce{Mounter: b.mounts}
			b.deps.Mounter = p
			p.armed.Store(true)
			end := func(ctx context.Context) error { return is.end(ctx, b) }
			if err := contained(t, end); err == nil || !strings.Contains(err.Error(), "it panicked: one panic") {
				t.Fatalf("the first time: %v", err)
			}
			if err := contained(t, end); err != nil {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}
