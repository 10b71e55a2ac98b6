package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func until(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestAPartThatEndsByItselfEndsTheOthersAndIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		part func(context.Context) error
		want string
	}{
		"an error": {func(context.Context) error { return errors.New("no disk") }, "podsync: volumes: no disk"},
		"a return": {func(context.Context) error { return nil }, "podsync: volumes: it returned though nobody asked"},
		"a panic":  {func(context.Context) error { panic("index out of range") }, "podsync: volumes: panic: index out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGroup(t.Context(), "podsync")
			g.Go("objects", until)
			g.Go("volumes", c.part)
			if err := g.Wait(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("ended with %v, want %s", err, c.want)
			}
		})
	}
}

func TestAPartThatIsDoneOnceEndsNoOther(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := NewGroup(ctx, "podsync")
	ended := make(chan struct{})
	g.Go("objects", func(ctx context.Context) error { defer close(ended); return until(ctx) })
	done := make(chan struct{})
	g.Once("old pulls", func(context.Context) error { close(done); return nil })
	<-done
	select {
	case <-ended:
		t.Fatal("the other part was ended")
	default:
	}
	cancel()
	if err := g.Wait(); err != nil {
		t.Errorf("an end that was asked for is %v", err)
	}
	g = NewGroup(t.Context(), "podsync")
	g.Go("objects", until)
	g.Once("old pulls", func(context.Context) error { panic("nil map") })
	if err := g.Wait(); err == nil || !strings.Contains(err.Error(), "old pulls: panic: nil map") {
		t.Errorf("a panic of it is %v", err)
	}
}

func TestWhatFailsWhileItIsAskedToStopIsNoError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	g := NewGroup(ctx, "gateway")
	g.Go("10250", func(ctx context.Context) error { <-ctx.Done(); return errors.New("connections were cut") })
	cancel()
	if err := g.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}
