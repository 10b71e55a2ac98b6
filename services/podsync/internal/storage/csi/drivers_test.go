package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
)

func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func groupOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Gid
}

func TestADriverThatCannotBeUsedIsNotTaken(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *bench)
		want   string
	}{
		"its name":       {func(b *bench) { b.plugin.Name = "a/b" }, `"a/b" is no name of a CSI driver`},
		"no versions":    {func(b *bench) { b.plugin.Versions = nil }, "none of its versions [] is supported"},
		"other versions": {func(b *bench) { b.plugin.Versions = []string{"0.3.0", "2.0.0"} }, "is supported, which must be 1.x"},
		"its endpoint":   {func(b *bench) { b.plugin.Endpoint = "tcp://127.0.0.1:1" }, "is no path of a socket"},
		"its node":       {func(*bench) {}, "driverNodeID must not be empty"},
		"its node fails": {func(b *bench) {
			b.fault("NodeGetInfo", func(context.Context) error { return status.Error(codes.Internal, "broken") })
		}, "broken"},
		"another is there":  {nil, `Another driver with the same name is already registered with a higher supported version: "1.0.0"`},
		"its node is large": {nil, "more than 256"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(cfg *fakecsi.Config) {
				switch name {
				case "its node":
					cfg.NodeID = ""
				case "its node is large":
					cfg.NodeID = strings.Repeat("n", 257)
				}
			})
			if name == "another is there" {
				b.register(t)
			} else if c.change != nil {
				c.change(b)
			}
			if err := b.Register(t.Context(), b.plugin); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestANewerDriverTakesTheNameAndTheOldOnesEndIsNotItsOwn(t *testing.T) {
	b := newBench(t, nil).register(t)
	newer := b.plugin
	newer.Versions = []string{"1.0.0", "1.5.0"}
	if err := b.Register(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	b.Deregister(b.plugin)
	if _, err := b.Setup(t.Context(), b.request()); err != nil {
		t.Errorf("the newer driver is gone with the older: %v", err)
	}
	b.Deregister(newer)
	if _, err := b.drivers.get(driverOf, "uid-1"); err == nil {
		t.Error("it is there though it was deregistered")
	}
}

func TestWhoFollowsTheDriversIsToldOfThemAndOfThoseThatAreGone(t *testing.T) {
	b := newBench(t, func(cfg *fakecsi.Config) { cfg.MaxVolumes, cfg.Topology = 5, map[string]string{"zone": "z"} }).register(t)
	sub := b.Subscribe(t.Context())
	defer sub.Close()
	frame, err := sub.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := frame.Changed[driverOf]; d.Name != driverOf || d.NodeID != "node-1" || d.MaxVolumes != 5 || d.Topology["zone"] != "z" || d.Gone {
		t.Errorf("the driver is %+v", d)
	}
	b.Deregister(b.plugin)
	if frame, err = sub.Next(t.Context()); err != nil || !frame.Changed[driverOf].Gone || frame.Changed[driverOf].NodeID != "" {
		t.Errorf("after its end it is %+v, %v", frame.Changed[driverOf], err)
	}
	b.register(t)
	if frame, err = sub.Next(t.Context()); err != nil || frame.Changed[driverOf].Gone || len(b.drivers.gone) != 0 {
		t.Errorf("when it is back it is %+v, %v", frame.Changed[driverOf], err)
	}
}

func TestOfDriversThatAreGoneOnlySoManyAreRemembered(t *testing.T) {
	b := newBench(t, nil)
	for i := range 2 * mostGone {
		b.plugin.Name = fmt.Sprint("driver-", i)
		b.register(t)
		b.Deregister(b.plugin)
	}
	if n := b.drivers.told.Len(); n != mostGone || len(b.drivers.gone) != mostGone {
		t.Errorf("%d are remembered", n)
	}
}

func TestOfDriversThatAreNeverTakenOnlySoManyAreRemembered(t *testing.T) {
	b := newBench(t, nil)
	reg := prometheus.NewRegistry()
	b.deps.Metrics = metrics.New(reg)
	b.drivers.forgotten = b.deps.Metrics.ForgetCSI
	b.fault("NodeGetInfo", func(context.Context) error { return errors.New("broken") })
	for i := range 2 * mostGone {
		p := b.plugin
		p.Name = fmt.Sprintf("driver-%d", i)
		if err := b.Register(t.Context(), p); err == nil {
			t.Fatal("a driver was taken that does not say who the node is")
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "csi_operations_seconds" && len(f.GetMetric()) != mostGone {
			t.Errorf("%d series of drivers that were never there, want those of the last %d", len(f.GetMetric()), mostGone)
		}
	}
}
