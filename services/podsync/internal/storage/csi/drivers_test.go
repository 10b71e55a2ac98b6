package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
	"github.com/polylet/polylet/services/podsync/internal/storage/csi/peer"
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
		"many versions":  {func(b *bench) { b.plugin.Versions = slices.Repeat(b.plugin.Versions, 101) }, "supports 101 versions"},
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
	forgotten := 0
	b.drivers.forgotten = func(string) { forgotten++ }
	for i := range 2 * mostGone {
		b.plugin.Name = fmt.Sprint("driver-", i)
		b.register(t)
		b.Deregister(b.plugin)
	}
	if n := b.drivers.told.Len(); n != mostGone || len(b.drivers.gone) != mostGone || forgotten != mostGone {
		t.Errorf("%d are remembered, %d forgotten", n, forgotten)
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

// TestADriverThatIsKnownIsNotForgottenSinceItWasRefused: what is counted of it stays.
func TestADriverThatIsKnownIsNotForgottenSinceItWasRefused(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, b *bench){
		"it is there":           func(t *testing.T, b *bench) { b.register(t); b.drivers.refuse(driverOf) },
		"it was there":          func(t *testing.T, b *bench) { b.register(t); b.Deregister(b.plugin); b.drivers.refuse(driverOf) },
		"it was refused before": func(t *testing.T, b *bench) { b.drivers.refuse(driverOf); b.register(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			var forgotten []string
			b.drivers.forgotten = func(name string) { forgotten = append(forgotten, name) }
			happens(t, b)
			for i := range mostGone {
				b.drivers.refuse(fmt.Sprint("driver-", i))
			}
			if len(forgotten) != 0 {
				t.Errorf("forgotten are %q", forgotten)
			}
		})
	}
	t.Run("one that is refused again and again pushes no other out", func(t *testing.T) {
		b := newBench(t, nil)
		b.drivers.forgotten = func(name string) { t.Errorf("%s is forgotten", name) }
		b.drivers.refuse("other")
		for range 2 * mostGone {
			b.drivers.refuse(driverOf)
		}
	})
}

// closes is a connection of which it is known whether it is closed.
type closes struct {
	peer.Conn
	closed *bool
}

func (c closes) Close() error {
	*c.closed = true
	return c.Conn.Close()
}

// TestADriverThatANewerOneOvertakesIsNotTaken, and nothing is left of it.
func TestADriverThatANewerOneOvertakesIsNotTaken(t *testing.T) {
	b := newBench(t, nil)
	newer := b.plugin
	newer.Versions = []string{"1.5.0"}
	closed, dial := false, b.deps.Dial
	b.deps.Dial = func(socket string) (peer.Conn, error) {
		b.deps.Dial = dial
		if err := b.Register(t.Context(), newer); err != nil {
			t.Error(err)
		}
		conn, err := dial(socket)
		return closes{conn, &closed}, err
	}
	if err := b.Register(t.Context(), b.plugin); err == nil || !strings.Contains(err.Error(), "already registered with a higher supported version") {
		t.Errorf("the error is %v", err)
	}
	if r, err := b.drivers.find(driverOf); err != nil || !slices.Equal(r.plugin.Versions, newer.Versions) || !closed {
		t.Errorf("there is %+v, %v; the connection with the older one is closed: %v", r, err, closed)
	}
}

// TestTheEndOfADriverIsNotThatOfOneAtAnotherEndpoint: an end may be told late.
func TestTheEndOfADriverIsNotThatOfOneAtAnotherEndpoint(t *testing.T) {
	b := newBench(t, nil).register(t)
	late := b.plugin
	late.Endpoint += ".earlier"
	b.Deregister(late)
	if !b.Knows(driverOf) {
		t.Error("it is gone")
	}
}

// TestWhatADriverSaysAnewIsToldOfItAsLongAsItIsThere, and what it says again is not.
func TestWhatADriverSaysAnewIsToldOfItAsLongAsItIsThere(t *testing.T) {
	b := newBench(t, nil).register(t)
	r, err := b.drivers.find(driverOf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sub := b.Subscribe(ctx)
	defer sub.Close()
	if _, err := sub.Next(ctx); err != nil {
		t.Fatal(err)
	}
	quiet := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if frame, err := sub.Next(ctx); err == nil {
			t.Errorf("told was %+v", frame)
		}
	}
	said := r.said
	b.drivers.renew(r, said)
	quiet()
	for _, change := range []func(){
		func() { said.NodeID = "renamed" }, func() { said.MaxVolumes = 7 }, func() { said.Topology = map[string]string{"zone": "z"} },
	} {
		change()
		b.drivers.renew(r, said)
		if frame, err := sub.Next(ctx); err != nil || !reflect.DeepEqual(frame.Changed[driverOf].Info, said) {
			t.Errorf("told was %+v, %v; want %+v", frame, err, said)
		}
	}
	b.Deregister(b.plugin)
	if frame, err := sub.Next(ctx); err != nil || !frame.Changed[driverOf].Gone {
		t.Errorf("told was %+v, %v", frame, err)
	}
	said.MaxVolumes = 8
	b.drivers.renew(r, said)
	quiet()
}
