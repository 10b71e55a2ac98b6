package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Group runs the parts of a service beside each other. The end of one that nobody
// asked to stop, a panic of it too, is an error that names it and ends the others.
type Group struct {
	name   string
	parent context.Context
	ctx    context.Context
	cancel context.CancelFunc
	parts  sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

// NewGroup returns a Group of a service's parts that end with ctx.
func NewGroup(ctx context.Context, service string) *Group {
	g := &Group{name: service, parent: ctx}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Go runs a part; it is to run until its context is done.
func (g *Group) Go(part string, run func(context.Context) error) {
	g.start(part, func(ctx context.Context) error { return runPart(ctx, run) })
}

// Once runs a part that may end before the others, when its work is done.
func (g *Group) Once(part string, run func(context.Context) error) {
	g.start(part, func(ctx context.Context) error { return guard(ctx, run) })
}

func (g *Group) start(part string, run func(context.Context) error) {
	g.parts.Go(func() {
		err := run(g.ctx)
		if err == nil || g.ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return
		}
		g.mu.Lock()
		g.errs = append(g.errs, fmt.Errorf("%s: %s: %w", g.name, part, err))
		g.mu.Unlock()
		g.cancel()
	})
}

// Wait waits for all parts and returns why they ended; nil when that was asked for.
func (g *Group) Wait() error {
	g.parts.Wait()
	asked := g.parent.Err() != nil
	g.cancel()
	if asked {
		return nil
	}
	return errors.Join(g.errs...)
}

// runPart turns every end of a part before ctx's into an error.
func runPart(ctx context.Context, part func(context.Context) error) error {
	err := guard(ctx, part)
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
		return nil
	case err == nil:
		return errors.New("it returned though nobody asked it to stop")
	default:
		return err
	}
}

// guard makes an error of a panic.
func guard(ctx context.Context, part func(context.Context) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return part(ctx)
}
