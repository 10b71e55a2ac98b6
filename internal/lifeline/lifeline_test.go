package lifeline

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// given is a line as a child gets it, and the supervisor's end.
func given(t *testing.T) (*Line, *os.File) {
	t.Helper()
	hear, say, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hear.Close() })
	fd, err := syscall.Dup(int(say.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	say.Close()
	line, err := Open(Value(fd, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if line.Every != time.Minute {
		t.Errorf("every %s", line.Every)
	}
	return line, hear
}

func TestWhatIsSaidIsHeard(t *testing.T) {
	line, hear := given(t)
	if err := line.Say(); err != nil {
		t.Fatal(err)
	}
	if n, err := hear.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// A supervisor that does not read holds its child up for a second at most.
func TestAFullPipeHoldsNobodyUp(t *testing.T) {
	line, _ := given(t)
	if err := line.file.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := line.file.Write(make([]byte, 4096)); err != nil {
			break
		}
	}
	if err := line.Say(); err != nil {
		t.Error(err)
	}
}

func TestWhatNobodyWroteIsRefused(t *testing.T) {
	for _, value := range []string{"x 1m", "5", "2 1m0s", "5 0s", "5 soon"} {
		if _, err := Open(value); err == nil || !strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
	if line, err := Open(""); line != nil || err != nil || line.Say() != nil {
		t.Errorf("none: %v, %v", line, err)
	}
}
