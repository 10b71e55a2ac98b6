package daemon

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

func TestAProcessThatOthersLeaveNoProcessorToIsNotTakenForOneThatHangs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := &Daemon{log: logr.Discard()}
	const timeout = 100 * time.Millisecond
	if err := d.answers(t.Context(), path, timeout, func() time.Duration { return time.Hour }); err == nil {
		t.Error("one that has waited for no processor, and does not answer, passes")
	}
	began := time.Now()
	gone := filepath.Join(t.TempDir(), "gone.sock")
	if err := d.answers(t.Context(), gone, timeout, func() time.Duration { return time.Since(began) }); err == nil {
		t.Error("one whose socket is gone passes")
	}
	if err := d.answers(t.Context(), path, timeout, func() time.Duration { return time.Since(began) }); err != nil {
		t.Errorf("one that waits for a processor all the while: %v", err)
	}
	d.silent = time.Now().Add(-longestStarved)
	if err := d.answers(t.Context(), path, timeout, func() time.Duration { return time.Since(began) }); err == nil {
		t.Error("one that has not answered for as long as none is starved passes")
	}
}
