package nodepage

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestAViewerWhoLeavesDoesNotWaitForWhatIsAskedForAnother(t *testing.T) {
	var s shared
	asked, answer, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		body, err := s.get(t.Context(), func(context.Context) any { close(asked); <-answer; return "it" })
		if string(body) != `"it"` || err != nil {
			t.Errorf("%s %v", body, err)
		}
	}()
	<-asked
	left := make(chan error, 1)
	go func() {
		ctx, leave := context.WithCancel(t.Context())
		leave()
		_, err := s.get(ctx, nil)
		left <- err
	}()
	select {
	case err := <-left:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits until the other has its answer")
	}
	close(answer)
	<-over
}
