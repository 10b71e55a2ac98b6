package execreaper

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// hangUp ends commands as a terminal that goes away does: SIGHUP to them and to
// what they have started, and after a grace SIGKILL. What they have started and
// ignores SIGHUP (nohup) stays, and so does what has got another parent by then.
func (h *Hold) hangUp(ctx context.Context, commands []Process) error {
	b := h.book
	defer b.forget(commands)
	l, err := h.ask(ctx, false)
	if err != nil {
		return err
	}
	hungUp := family(l.all, append(family(h.seen, commands), commands...))
	if !slices.ContainsFunc(hungUp, func(p Process) bool { return h.mustGo(p, commands) }) {
		b.count.WithLabelValues("ended").Inc()
		return nil
	}
	var errs []error
	for _, p := range hungUp {
		_, err := b.deps.Host.Signal(h.container, p, unix.SIGHUP)
		errs = append(errs, err)
	}
	if err := b.wait(ctx, nil, b.grace); err != nil {
		return err
	}
	killed, err := h.kill(ctx, commands, hungUp)
	if err = errors.Join(append(errs, err)...); err != nil {
		b.count.WithLabelValues("failed").Inc()
		return fmt.Errorf("end a command whose client has left: %w", err)
	}
	result := "hungup"
	if killed > 0 {
		result = "killed"
	}
	b.count.WithLabelValues(result).Inc()
	klog.FromContext(ctx).Info("Ended a command whose client has left", "containerID", h.container, "program", h.program,
		"pid", commands[0].PID, "processes", len(hungUp), "killed", killed)
	return nil
}

// kill sends SIGKILL to what is left and returns how many that were.
func (h *Hold) kill(ctx context.Context, commands, hungUp []Process) (killed int, err error) {
	host := h.book.deps.Host
	l, err := h.ask(ctx, false)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, p := range family(l.all, hungUp) {
		if !h.mustGo(p, commands) {
			continue
		}
		gone, err := host.Signal(h.container, p, unix.SIGKILL)
		if errs = append(errs, err); !gone && err == nil {
			killed++
		}
	}
	return killed, errors.Join(errs...)
}

// mustGo says whether a process may not stay: it is the command, or does not
// ignore SIGHUP.
func (h *Hold) mustGo(p Process, commands []Process) bool {
	return slices.ContainsFunc(commands, p.same) || !h.book.deps.Host.IgnoresHangup(p.PID)
}

func (b *Book) forget(commands []Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range commands {
		delete(b.ending, p.PID)
	}
}
