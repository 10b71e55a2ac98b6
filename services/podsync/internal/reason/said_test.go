package reason

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAFailureThatLastsIsSaidAgainWhenItIsAnotherAndOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		said := Said{}
		for i, c := range []struct {
			after time.Duration
			err   string
			tell  bool
		}{
			{0, "driver is away", true},
			{time.Minute, "driver is away", false},
			{time.Minute, "device is busy", true},
			{time.Minute, "device is busy", false},
			{0, "sandbox 445fb914 is busy", true},
			{0, "sandbox 445fb915 is busy", false},
			{58 * time.Minute, "sandbox 445fb915 is busy", false},
			{2 * time.Minute, "sandbox 445fb915 is busy", true},
			{time.Minute, "sandbox 445fb915 is busy", false},
		} {
			time.Sleep(c.after)
			if since, tell := said.Failed(errors.New(c.err)); tell != c.tell || !since.Equal(began) {
				t.Errorf("%d: %q is told %v, since %v", i, c.err, tell, since)
			}
		}
		if lasted, was := said.Good(); !was || lasted != time.Since(began) {
			t.Errorf("it was said %v, and lasted %v", was, lasted)
		}
		if lasted, was := said.Good(); was || lasted != 0 {
			t.Errorf("it is good again %v, after %v", was, lasted)
		}
		if since, tell := said.Failed(errors.New("sandbox 445fb915 is busy")); !tell || !since.Equal(time.Now()) {
			t.Errorf("a new failure is told %v, since %v", tell, since)
		}
	})
}

func TestOfALongFailureItsBeginningIsKept(t *testing.T) {
	said, long := Said{}, strings.Repeat("a driver says much. ", 100_000)
	for i, tell := range []bool{true, false} {
		if _, told := said.Failed(errors.New(long)); told != tell || len(said.text) != saidKept {
			t.Errorf("%d: told %v, %d bytes are kept", i, told, len(said.text))
		}
	}
}
