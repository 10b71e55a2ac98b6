package kernellog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/testkit/eventually"
)

// log gives a record with each Read, and then what end says or waits.
type log struct {
	records []string
	end     error
	closed  chan struct{}
}

func (l *log) Read(p []byte) (int, error) {
	if len(l.records) == 0 {
		if l.end != nil {
			return 0, l.end
		}
		<-l.closed
		return 0, os.ErrClosed
	}
	next := l.records[0]
	l.records = l.records[1:]
	if next == "" {
		return 0, syscall.EPIPE
	}
	return copy(p, next), nil
}

func (l *log) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// reading runs a Log on records while do runs.
func reading(t *testing.T, file *log, openErr error, do func(l *Log, problem *string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		file.closed = make(chan struct{})
		problem := new(string)
		l := New(Config{
			Open:    func() (io.ReadCloser, error) { return file, openErr },
			Boot:    func() time.Time { return time.Unix(1000, 0) },
			Problem: func(m string) { *problem = m },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		do(l, problem)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func kill(sequence int) string {
	return fmt.Sprintf("3,%d,5000000,-;Out of memory: Killed process 42 (eater) total-vm:9kB\n", sequence)
}

func TestKillsAreKeptAlthoughRecordsWereOverwritten(t *testing.T) {
	reading(t, &log{records: []string{kill(3), "6,4,0,-;else\n", "rubbish", "", kill(9)}}, nil, func(l *Log, problem *string) {
		got, _ := l.After(0)
		if len(got) != 2 || got[0].Sequence != 3 || got[1].Sequence != 9 || *problem != "" {
			t.Errorf("%+v, %q", got, *problem)
		}
		if got, _ := l.After(3); len(got) != 1 || got[0].Sequence != 9 {
			t.Errorf("after the first %+v", got)
		}
	})
}

func TestOnlyTheNewestKillsAreKept(t *testing.T) {
	file := &log{}
	for i := range 3 * kept {
		file.records = append(file.records, kill(i+1))
	}
	reading(t, file, nil, func(l *Log, _ *string) {
		if got, _ := l.After(0); len(got) != kept || got[kept-1].Sequence != 3*kept {
			t.Errorf("%d kills", len(got))
		}
	})
}

func TestKillsOfContainersPushNoneOfTheMachineOut(t *testing.T) {
	file := &log{records: []string{kill(1)}}
	for i := range 2 * kept {
		file.records = append(file.records, fmt.Sprintf("3,%d,5000000,-;Memory cgroup out of memory: Killed process 43 (child) total-vm:9kB\n", i+2))
	}
	reading(t, file, nil, func(l *Log, _ *string) {
		got, _ := l.After(0)
		if len(got) != kept+1 || !got[0].System || got[1].Sequence != kept+2 || got[kept].Sequence != 2*kept+1 {
			t.Errorf("%d kills: %+v", len(got), got)
		}
	})
}

func TestALogThatCannotBeReadIsToldAndNothingEnds(t *testing.T) {
	reading(t, &log{}, errors.New("no right"), func(_ *Log, problem *string) {
		if !strings.Contains(*problem, "no right") {
			t.Errorf("%q", *problem)
		}
	})
	reading(t, &log{end: syscall.EIO}, nil, func(_ *Log, problem *string) {
		if !strings.Contains(*problem, "input/output error") {
			t.Errorf("%q", *problem)
		}
	})
}

func TestTheMachinesOwnLogIsRead(t *testing.T) {
	file, err := Open()
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	buffer := make([]byte, longestRecord)
	n, err := file.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	if record, ok := ParseRecord(buffer[:n]); !ok || record.Text == "" {
		t.Errorf("%q", buffer[:n])
	}
	if boot := Boot(); time.Since(boot) <= 0 {
		t.Errorf("the machine will start at %s", boot)
	}
}

func TestWhatIsReadAsItHappensIsOfNowWhateverTheKernelsClockSays(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	own, err := newTail(r)
	if err != nil {
		t.Fatal(err)
	}
	boot := time.Now().Add(-time.Hour)
	l := New(Config{Open: func() (io.ReadCloser, error) { return own, nil }, Boot: func() time.Time { return boot }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	defer func() {
		if cancel(); <-done != nil {
			t.Error("it does not end")
		}
	}()
	next := func(sequence uint64) Kill {
		t.Helper()
		if _, err := w.WriteString(kill(int(sequence))); err != nil {
			t.Fatal(err)
		}
		if sequence == 1 {
			go func() { done <- l.Run(ctx) }()
		}
		for {
			kills, more := l.After(sequence - 1)
			if len(kills) > 0 {
				return kills[0]
			}
			select {
			case <-more:
			case <-time.After(time.Minute):
				t.Fatal("it is not read")
			}
		}
	}
	if got := next(1).Time; !got.Equal(boot.Add(5 * time.Second)) {
		t.Errorf("what was there before is of %v", got)
	}
	eventually.True(t, "all is read", own.live)
	if got := time.Since(next(2).Time); got > 30*time.Minute {
		t.Errorf("what was read as it happened is %v old", got)
	}
}
