package ctxclock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWaitEndsWithItsTimeOrWithItsContextWhicheverComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := New(ctx)
		began := time.Now()
		<-c.After(10 * time.Second)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("waited %v, want 10s", took)
		}
		time.AfterFunc(time.Second, cancel)
		<-c.After(time.Hour)
		if took := time.Since(began); took != 11*time.Second {
			t.Errorf("a wait whose context ended after 1s took %v", took-10*time.Second)
		}
		<-c.After(time.Hour)
		if took := time.Since(began); took != 11*time.Second {
			t.Errorf("a wait that began after the context's end took %v", took-11*time.Second)
		}
	})
}
