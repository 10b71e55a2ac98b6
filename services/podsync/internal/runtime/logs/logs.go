// Package logs owns reading container logs: the CRI format (and the legacy
// Docker JSON one), PodLogOptions, following across rotation. It must never
// hold more of a log than a buffer, never follow a link below the log root,
// and never decide which container is meant.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/host/beneath"
)

// Config of a Reader.
type Config struct {
	// Root is the directory below which all logs are; /var/log/pods when empty.
	Root string
}

// Notifier tells when something in a directory changed.
type Notifier interface {
	// Notify calls changed after each change in dir until ctx is done; it
	// returns when ctx is done or when it cannot watch.
	Notify(ctx context.Context, dir string, changed func()) error
}

// Deps is what a Reader is given.
type Deps struct {
	// Notifier is inotify when nil.
	Notifier Notifier
}

// Reader reads logs. Safe for concurrent use.
type Reader struct {
	root     string
	notifier Notifier
}

// New returns a Reader.
func New(cfg Config, deps Deps) *Reader {
	r := &Reader{root: cfg.Root, notifier: deps.Notifier}
	if r.root == "" {
		r.root = "/var/log/pods"
	}
	if r.notifier == nil {
		r.notifier = &inotify{}
	}
	return r
}

// Request is one reading.
type Request struct {
	// Path of the log file, below Root.
	Path string
	// Options as the client gave them; validated by Validate.
	Options *v1.PodLogOptions
	// Ended is closed when the container no longer runs; nil when it does not
	// run now. Only following looks at it.
	Ended <-chan struct{}
	// Now is what sinceSeconds counts from.
	Now time.Time
}

// Validate says what is wrong with the options; nil when nothing is.
func Validate(o *v1.PodLogOptions) error {
	var errs []error
	if o.SinceSeconds != nil && o.SinceTime != nil {
		errs = append(errs, errors.New("sinceSeconds and sinceTime: at most one of the two may be given"))
	}
	if o.SinceSeconds != nil && *o.SinceSeconds < 1 {
		errs = append(errs, fmt.Errorf("sinceSeconds: %d: must be greater than 0", *o.SinceSeconds))
	}
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, fmt.Errorf("tailLines: %d: must be greater than or equal to 0", *o.TailLines))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, fmt.Errorf("limitBytes: %d: must be greater than 0", *o.LimitBytes))
	}
	return errors.Join(errs...)
}

// Read writes the log to w as the options ask. It returns nil at the end, when
// the limit is reached, and when ctx ends while following. An absent file is
// fs.ErrNotExist.
func (r *Reader) Read(ctx context.Context, req Request, w io.Writer) error {
	o := req.Options
	if o == nil {
		o = &v1.PodLogOptions{}
	}
	f, err := r.open(req.Path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if o.TailLines != nil {
		if err := seekTail(f, *o.TailLines); err != nil {
			return fmt.Errorf("find the last %d lines of %s: %w", *o.TailLines, req.Path, err)
		}
	}
	d := newDecoder(w, o, req.Now)
	if !o.Follow {
		return done(d.copy(ctx, f))
	}
	t := &follower{reader: r, req: req, file: f, decoder: d}
	defer func() { _ = t.file.Close() }()
	return done(t.run(ctx))
}

// done turns the ends that are no errors into nil.
func done(err error) error {
	if errors.Is(err, errLimit) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// open opens a regular file below the root. No link below the root is followed,
// not even to another place below it: that would be another pod's log.
func (r *Reader) open(path string) (*os.File, error) {
	f, err := beneath.Open(r.root, path)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", path, err)
	}
	return f, nil
}
