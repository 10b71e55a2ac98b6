package eventually

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// ended is a test that notes with what it ended.
type ended struct {
	testing.TB
	with string
}

func (*ended) Helper() {}

func (e *ended) Fatalf(format string, args ...any) {
	e.with = fmt.Sprintf(format, args...)
	panic(e)
}

func TestItIsAskedUntilItIsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		True(t, "it never is", func() bool { return time.Since(began) >= 10*time.Second })
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestWhatNeverComesTrueEndsTheTestWithTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, tries := &ended{TB: t}, 0
		defer func() {
			if recover() != e || e.with != fmt.Sprintf("try %d, after 30s", tries) {
				t.Errorf("it ended with %q after %d tries", e.with, tries)
			}
		}()
		Nil(e, func() error {
			tries++
			return errors.New(fmt.Sprint("try ", tries))
		})
		t.Error("the test goes on")
	})
}
