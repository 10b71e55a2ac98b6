package vm

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAnImageIsBuiltByOneProgramAtATime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "vm", "key")
	began, goOn, ends := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		ends <- complete(ctx, dir, io.Discard, func() error {
			err := os.WriteFile(filepath.Join(dir, "part"), nil, 0o644)
			close(began)
			<-goOn
			return err
		})
	}()
	<-began
	said, progress := io.Pipe()
	go func() {
		ends <- complete(ctx, dir, progress, func() error { return errors.New("it is built twice") })
		_ = progress.Close()
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "another program builds it") || !strings.Contains(line, dir) {
		t.Errorf("it says %q, %v", line, err)
	}
	gone, stop := context.WithCancel(ctx)
	stop()
	if err := complete(gone, dir, io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("who does not want it any more: %v", err)
	}
	close(goOn)
	for range 2 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "part")); err != nil || !built(dir) {
		t.Errorf("it is not whole: %v", err)
	}
}

// TestAnImageThatIsNotWholeIsBuiltAnew: whoever has begun it has ended.
func TestAnImageThatIsNotWholeIsBuiltAnew(t *testing.T) {
	dir, failed := filepath.Join(t.TempDir(), "key"), errors.New("no network")
	fill := func(name string, err error) func() error {
		return func() error { return errors.Join(os.WriteFile(filepath.Join(dir, name), nil, 0o644), err) }
	}
	if err := complete(t.Context(), dir, io.Discard, fill("old", failed)); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	if err := complete(t.Context(), dir, io.Discard, fill("new", nil)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "old")); !errors.Is(err, os.ErrNotExist) || !built(dir) {
		t.Errorf("what was begun is still there: %v", err)
	}
}
