package sim

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/podsync"
)

// diskConn is the way to a driver.
type diskConn struct {
	*life
	path   string
	closed chan struct{}
	shut   func()
}

// dialDisk connects one life of podsync with the driver at a socket.
func (l *life) dialDisk(path string) (podsync.CSIConn, error) {
	closed := make(chan struct{})
	return &diskConn{life: l, path: path, closed: closed, shut: sync.OnceFunc(func() { close(closed) })}, nil
}

// Close implements podsync.CSIConn.
func (c *diskConn) Close() error {
	c.shut()
	return nil
}

// NewStream implements grpc.ClientConnInterface; no driver has streams.
func (c *diskConn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "there are no streams")
}

// Invoke implements grpc.ClientConnInterface.
func (c *diskConn) Invoke(ctx context.Context, method string, req, reply any, _ ...grpc.CallOption) error {
	w, name := c.w, filepath.Base(method)
	dies, after := w.disks.fatal(name)
	if dies && !after {
		c.crash("before " + name)
	}
	err := c.through(name+" "+volumeOf(req)+" "+placeOf(req), func() error {
		do := func() error { return c.call(ctx, method, req, reply) }
		if s := w.sabotage; s != nil && s.csi != nil {
			return s.csi(w, name, req, do)
		}
		return do()
	})
	if dies && after {
		c.crash("after " + name)
		err = errDead
	}
	if errors.Is(err, errDead) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}

// fatal says whether podsync dies at this call, as the scenario wants it.
func (d *disks) fatal(name string) (dies, after bool) {
	plan := d.w.scenario.csi
	if !changing(name) || !d.w.noisy.Load() {
		return false, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return d.asked == plan.dies, plan.after
}

// call asks whoever is at the socket. What was begun goes on when nobody waits for it any
// more.
func (c *diskConn) call(ctx context.Context, method string, req, reply any) error {
	at := c.w.disks.at(c.path)
	if at == nil {
		return status.Error(codes.Unavailable, "connection refused")
	}
	ended := c.w.judge.diskCall(c.life, at.driver, filepath.Base(method), req)
	type answer struct {
		reply any
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		said, err := at.serve(method, proto.Clone(req.(proto.Message)))
		done <- answer{said, err}
	}()
	err := func() error {
		select {
		case a := <-done:
			if a.err == nil {
				proto.Merge(reply.(proto.Message), a.reply.(proto.Message))
			}
			return a.err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-at.process.ctx.Done():
			return status.Error(codes.Unavailable, "error reading from server: EOF")
		case <-c.closed:
			return status.Error(codes.Canceled, "grpc: the client connection is closing")
		}
	}()
	ended(err)
	return err
}

// plugins stands in for the directory of plugins' sockets, as host/plugins sees it.
func (l *life) plugins(ctx context.Context, taken podsync.PluginHandler) error {
	var group sync.WaitGroup
	defer group.Wait()
	begun := map[*socket]bool{}
	last := map[string]chan struct{}{}
	for {
		sockets, changed := l.w.disks.list()
		for _, s := range sockets {
			if begun[s] {
				continue
			}
			begun[s] = true
			before, ended := last[s.path], make(chan struct{})
			last[s.path] = ended
			group.Go(func() {
				defer close(ended)
				if before != nil {
					<-before
				}
				l.attend(ctx, taken, s)
			})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// attend keeps the driver of a socket registered until its file is gone.
func (l *life) attend(run context.Context, taken podsync.PluginHandler, s *socket) {
	ctx, cancel := context.WithCancel(run)
	defer cancel()
	go func() {
		select {
		case <-s.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	p := podsync.Plugin{Name: s.driver.name, Endpoint: s.path, Versions: []string{"1.0.0"}}
	again := backoff.New(backoff.Config{Initial: 500 * time.Millisecond, Max: 2 * time.Minute})
	for ctx.Err() == nil {
		if s.process.ctx.Err() == nil {
			if err := taken.Register(ctx, p); err == nil {
				l.w.tell("DRIVER registered", "driver", p.Name, "at", p.Endpoint)
				l.w.judge.registered(l, p.Name, true)
				<-ctx.Done()
				if run.Err() == nil {
					l.w.judge.registered(l, p.Name, false)
					taken.Deregister(p)
				}
			}
		}
		if again.Wait(ctx) != nil {
			return
		}
	}
}
