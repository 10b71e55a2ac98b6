// Package checkpoint writes down what a package holds, after each change, so that
// the next run of this process has it: one file, old or new, never half. A damaged
// file is set aside and told; what cannot be written is tried again until it can.
//
// It owns when the file is read and written. It must never know what is in it, and
// never make whoever changes something wait for the disk.
package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/wake"
)

// Config says what is kept, and in which words its loss is told.
type Config struct {
	// File is the checkpoint's path; empty keeps nothing.
	File string
	// What is kept, as health and errors name it: "probe results".
	What string
	// Lost is logged when the file is damaged: what that means, and what to do.
	Lost string
	// Unkept is logged when the file cannot be written: what a restart would mean.
	Unkept string
	// Health is told whether the file can be read and written; may be nil.
	Health health.Reporter
}

// Keeper keeps a T. Safe for concurrent use.
type Keeper[T any] struct {
	cfg      Config
	file     *fsatomic.Checkpoint[T]
	snapshot func() T
	changed  wake.Signal // wakes Run
}

// New touches no file. snapshot returns what is to be kept now; nobody changes
// what it has returned.
func New[T any](cfg Config, snapshot func() T) *Keeper[T] {
	if cfg.Health == nil {
		cfg.Health = health.Discard()
	}
	return &Keeper[T]{cfg: cfg, file: fsatomic.NewCheckpoint[T](cfg.File), snapshot: snapshot, changed: wake.New()}
}

// Load reads what an earlier run of this process kept; false when there is
// nothing, or nothing that can be used.
func (k *Keeper[T]) Load(log logr.Logger) (T, bool) {
	var none T
	if k.cfg.File == "" {
		return none, false
	}
	kept, err := k.file.Read()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return none, false
	case err != nil:
		log.Error(err, k.cfg.Lost)
		k.cfg.Health.Set(k.cfg.What, false, err.Error())
		k.Changed() // a sound one takes its place
		return none, false
	}
	return kept, true
}

// Changed asks Run to write; it never waits.
func (k *Keeper[T]) Changed() {
	k.changed.Set()
}

// again is how long after a failure it is tried again to write.
const again = 30 * time.Second

// Run writes after each change until ctx is done.
func (k *Keeper[T]) Run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.changed:
		case <-retry:
		}
		if k.cfg.File == "" {
			continue
		}
		err := k.write()
		if err == nil {
			retry = nil
			k.cfg.Health.Set(k.cfg.What, true, "")
			continue
		}
		if retry == nil {
			log.Error(err, k.cfg.Unkept+"; it is tried again", "every", again.String())
		}
		retry = time.After(again)
		k.cfg.Health.Set(k.cfg.What, false, err.Error())
	}
}

func (k *Keeper[T]) write() error {
	if err := os.MkdirAll(filepath.Dir(k.cfg.File), 0o750); err != nil {
		return fmt.Errorf("keep %s: %w; check that the disk is writable", k.cfg.What, err)
	}
	if err := k.file.Write(k.snapshot()); err != nil {
		return fmt.Errorf("keep %s in %s: %w; check that the disk has room", k.cfg.What, k.cfg.File, err)
	}
	return nil
}
