package fsatomic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Checkpoint is one value kept in one file as JSON with a checksum. Not safe
// for concurrent use.
type Checkpoint[T any] struct {
	path string
	mode os.FileMode
	read func(path string) ([]byte, error)
}

// NewCheckpoint names the file; nothing is touched yet. Files get mode 0600.
func NewCheckpoint[T any](path string) *Checkpoint[T] {
	return &Checkpoint[T]{path: path, mode: 0o600, read: readRegular}
}

// A file that cannot be read is no damaged one: the process may have no descriptors
// left, the disk may answer again. It is tried this often, with this pause.
const (
	mostReads = 16
	readAgain = 250 * time.Millisecond
)

// DamagedError says that a checkpoint could not be believed, or was not to be read for
// seconds, and was set aside.
type DamagedError struct {
	// Path is the checkpoint's name.
	Path string
	// SetAside is where the damaged file is now; empty when moving it failed.
	SetAside string
	// Cause is what was wrong.
	Cause error
	// Unread is true when the content may be good, but could not be read.
	Unread bool
}

// Error names the file, the fault, and where the file is now.
func (e *DamagedError) Error() string {
	if e.Unread && e.SetAside != "" {
		return fmt.Sprintf("checkpoint %s cannot be read (%v), though that was tried for %v; it was set aside as %s and its state is rebuilt", e.Path, e.Cause, mostReads*readAgain, e.SetAside)
	}
	if e.SetAside == "" {
		return fmt.Sprintf("checkpoint %s is damaged and could not be set aside: %v: remove it by hand", e.Path, e.Cause)
	}
	return fmt.Sprintf("checkpoint %s is damaged (%v); it was set aside as %s and its state is rebuilt", e.Path, e.Cause, e.SetAside)
}

// Unwrap gives the cause.
func (e *DamagedError) Unwrap() error { return e.Cause }

type envelope struct {
	Checksum string          `json:"checksum"`
	Data     json.RawMessage `json:"data"`
}

// Write replaces the checkpoint.
func (c *Checkpoint[T]) Write(value T) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode checkpoint %s: %w", c.path, err)
	}
	out, err := json.Marshal(envelope{Checksum: checksum(data), Data: data})
	if err != nil {
		return fmt.Errorf("encode checkpoint %s: %w", c.path, err)
	}
	return WriteFile(c.path, append(out, '\n'), c.mode)
}

// Read returns the value. A missing file gives an error that is os.ErrNotExist.
// A damaged one, one that cannot be read for seconds, and what is no file at all, is
// renamed to <path>.damaged-<time> and gives a *DamagedError; the next Read then finds
// no file. No Write may be under way.
func (c *Checkpoint[T]) Read() (T, error) {
	var zero T
	Clean(filepath.Dir(c.path), filepath.Base(c.path))
	raw, err := c.read(c.path)
	for try := 1; unread(err) && try < mostReads; try++ {
		time.Sleep(readAgain)
		raw, err = c.read(c.path)
	}
	if errors.Is(err, os.ErrNotExist) {
		return zero, fmt.Errorf("read checkpoint: %w", err)
	}
	var value T
	if err == nil {
		value, err = decode[T](raw)
	}
	if err == nil {
		return value, nil
	}
	damaged := &DamagedError{Path: c.path, Cause: err, Unread: unread(err)}
	aside, err := SetAside(c.path)
	if err != nil {
		damaged.Cause = errors.Join(damaged.Cause, err)
	} else {
		damaged.SetAside = aside
	}
	return zero, damaged
}

// Peek is Read for who does not own the file: it changes nothing, whatever it finds, and a
// Write may be under way.
func (c *Checkpoint[T]) Peek() (T, error) {
	var zero T
	raw, err := c.read(c.path)
	if err != nil {
		return zero, fmt.Errorf("read checkpoint: %w", err)
	}
	value, err := decode[T](raw)
	if err != nil {
		return zero, fmt.Errorf("read checkpoint %s: %w", c.path, err)
	}
	return value, nil
}

// unread says whether a read's error may pass, and so says nothing of the content.
func unread(err error) bool {
	errno := syscall.Errno(0)
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.EAGAIN, syscall.EINTR, syscall.ETIMEDOUT, syscall.ESTALE:
		return true
	}
	return false
}

// readRegular reads a file; what is none, or cannot be read, is an error at once.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no file but %s", info.Mode().Type())
	}
	return os.ReadFile(path)
}

// Remove deletes the checkpoint; a missing one is no error.
func (c *Checkpoint[T]) Remove() error {
	if err := os.Remove(c.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove checkpoint: %w", err)
	}
	return nil
}

func decode[T any](raw []byte) (T, error) {
	var value T
	var env envelope
	if len(bytes.TrimSpace(raw)) == 0 {
		return value, errors.New("the file is empty")
	}
	if err := json.Unmarshal(raw, &env); err != nil {
		return value, fmt.Errorf("not JSON: %w", err)
	}
	if got := checksum(env.Data); got != env.Checksum {
		return value, fmt.Errorf("checksum is %s, the file says %q", got, env.Checksum)
	}
	if err := json.Unmarshal(env.Data, &value); err != nil {
		return value, fmt.Errorf("wrong shape: %w", err)
	}
	return value, nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
