package server

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/services/stats/internal/cgroup"
)

// crossed does as the kernel does when a level is crossed that was asked for in a
// directory, and returns that level.
func crossed(t *testing.T, dir string) (level uint64) {
	t.Helper()
	var event, usage int
	eventually.Nil(t, func() error { // A real thread.
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.event_control"))
		if err == nil {
			_, err = fmt.Sscan(string(data), &event, &usage, &level)
		}
		return err
	})
	if _, err := unix.Write(event, binary.NativeEndian.AppendUint64(nil, 1)); err != nil {
		t.Fatal(err)
	}
	return level
}

func TestMemoryThatTheKernelTellsOfIsMeasuredAtOnceAndLessOftenElse(t *testing.T) {
	dir, used := t.TempDir(), &memory{used: 1 << 20}
	for _, name := range []string{"memory.usage_in_bytes", "cgroup.event_control"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newServerOf(t, used, "/proc", cgroup.New(false, map[string]string{"memory": dir}))
	info, err := s.Machine.Info()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	to := &stream[statsv1.WatchSignalsResponse]{ctx: ctx}
	done := make(chan error, 1)
	go func() {
		done <- s.WatchSignals(&statsv1.WatchSignalsRequest{
			Period: durationpb.New(10 * time.Minute), Marks: []*statsv1.Mark{{Signal: "memory.available", Percent: 5}},
		}, to)
	}()
	began := time.Now()
	level := crossed(t, dir)
	if want := info.MemoryCapacity - info.MemoryCapacity*5/100; level < want-1<<20 || level > want+1<<20 {
		t.Errorf("it is told of at %d, want about %d", level, want)
	}
	for len(to.all()) < 1 {
		time.Sleep(10 * time.Millisecond)
	}
	used.use(info.MemoryCapacity)
	crossed(t, dir)
	for len(to.all()) < 2 && time.Since(began) < time.Minute {
		time.Sleep(10 * time.Millisecond)
	}
	if all := to.all(); len(all) != 2 || time.Since(began) > time.Minute {
		t.Errorf("%d frames after %s", len(all), time.Since(began))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
