package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/internal/lifeline"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/uds"
)

// stopDeadline is how long calls in flight may go on after the stop began.
const stopDeadline = 3 * time.Second

// Run checks that of every RPC it is said who may call it, opens the socket, tells
// systemd that the process is ready, and runs the parts until ctx is done; then it stops
// in order: streams end, calls in flight get stopDeadline, parts are waited for. It
// returns nil after a clean stop. A part that fails, panics, or returns before ctx is
// done ends the process with an error; the supervisor starts it again.
func (d *Daemon) Run(ctx context.Context, parts ...func(context.Context) error) error {
	if _, err := d.Methods(); err != nil {
		return fmt.Errorf("%s: %w", d.opts.Service, err)
	}
	listener, err := uds.Listen(d.SocketPath(d.opts.Service), d.group())
	if err != nil {
		return fmt.Errorf("%s: %w", d.opts.Service, err)
	}
	return d.runOn(ctx, listener, parts)
}

func (d *Daemon) group() string {
	if d.opts.SocketGroup != "" {
		return d.opts.SocketGroup
	}
	if _, err := user.LookupGroup(uds.DefaultGroup); err != nil {
		d.log.V(1).Info("Group does not exist: the socket keeps this process's group", "group", uds.DefaultGroup)
		return ""
	}
	return uds.DefaultGroup
}

func (d *Daemon) runOn(parent context.Context, listener net.Listener, parts []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(klog.NewContext(parent, d.log))
	defer cancel(nil)
	d.log.Info("Starting", "build", buildinfo.Get().String(), "node", d.opts.NodeName, "socket", listener.Addr().String(), "epoch", d.epoch)

	var group sync.WaitGroup
	group.Go(func() {
		if err := d.server.Serve(listener); err != nil {
			cancel(fmt.Errorf("serve %s: %w", listener.Addr(), err))
		}
	})
	for i, part := range parts {
		group.Go(func() {
			if err := runPart(ctx, part); err != nil {
				cancel(fmt.Errorf("%s: part %d: %w", d.opts.Service, i, err))
			}
		})
	}
	group.Go(func() { _ = d.tracing.Run(ctx) })
	line, err := lifeline.Open(os.Getenv(lifeline.Variable))
	if err != nil {
		d.log.Error(err, "polylet run's watchdog is not answered")
	}
	group.Go(func() {
		if err := d.watchdog(ctx, listener.Addr().String(), line); err != nil {
			cancel(fmt.Errorf("%s: %w", d.opts.Service, err))
		}
	})
	group.Go(func() { LeanMemory(ctx, d.opts.GCPercent) })
	d.health.SetServingStatus(d.opts.Service, serving(d.allReady()))
	d.notify(daemon.SdNotifyReady)
	d.say(line)

	<-ctx.Done()
	d.shutDown()
	group.Wait()
	if err := context.Cause(ctx); parent.Err() == nil {
		return err
	}
	d.log.Info("Stopped")
	return nil
}

func (d *Daemon) allReady() bool {
	ok, _ := d.tracker.Ready()
	return ok
}

func (d *Daemon) shutDown() {
	d.notify(daemon.SdNotifyStopping)
	d.health.Shutdown()
	d.stop()
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		d.server.GracefulStop()
	}()
	timer := time.NewTimer(stopDeadline)
	defer timer.Stop()
	select {
	case <-graceful:
	case <-timer.C:
		d.log.Info("Calls in flight are cut", "after", stopDeadline.String())
		d.server.Stop()
		<-graceful
	}
}

func (d *Daemon) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		d.log.Error(err, "Could not tell systemd", "state", state)
	}
}

// say tells polylet run that the process answers.
func (d *Daemon) say(line *lifeline.Line) {
	if err := line.Say(); err != nil {
		d.log.Error(err, "Could not tell polylet run that this process answers")
	}
}

// watchdog answers systemd's watchdog, or polylet run's, for as long as the process
// answers a call on its own socket, or would with a processor. It returns an error when polylet run has to make
// the socket anew, which it does before a start only.
func (d *Daemon) watchdog(ctx context.Context, address string, line *lifeline.Line) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Error(err, "systemd's watchdog is not answered: WATCHDOG_USEC or WATCHDOG_PID cannot be read")
	}
	if interval == 0 && line != nil {
		interval = line.Every
	}
	if interval == 0 {
		return nil
	}
	ticker := time.NewTicker(interval / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := d.answers(ctx, address, interval/4, waitedForProcessors); err != nil {
			if _, lost := os.Lstat(address); line != nil && errors.Is(lost, fs.ErrNotExist) {
				return fmt.Errorf("somebody has removed the socket %s, and nobody new reaches this process; it ends, so that polylet run makes the socket anew", address)
			}
			d.log.Error(err, "Watchdog: the process does not answer on its own socket", "socket", address)
			continue
		}
		d.notify(daemon.SdNotifyWatchdog)
		d.say(line)
	}
}

func checkSelf(ctx context.Context, path string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := rpc.Dial(path)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
	return err
}
