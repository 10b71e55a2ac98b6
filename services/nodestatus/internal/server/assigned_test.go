package server

import (
	"context"
	"errors"
	"testing"
	"time"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

func TestWhetherTheApiserverAnswersIsAskedOnceForEachQuestion(t *testing.T) {
	var answer error
	asked := 0
	s := New(Deps{AskApiserver: func(ctx context.Context) error {
		if deadline, bounded := ctx.Deadline(); !bounded || time.Until(deadline) > askWithin {
			t.Errorf("the question has until %v", deadline)
		}
		asked++
		return answer
	}})
	for _, answer = range []error{nil, errors.New("connection refused")} {
		got, err := s.AskApiserver(t.Context(), &nodestatusv1.AskApiserverRequest{})
		if err != nil || (got.GetError() == "") != (answer == nil) || answer != nil && got.GetError() != answer.Error() {
			t.Errorf("%v: %v %v", answer, got, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	if _, err := New(Deps{}).AskApiserver(t.Context(), &nodestatusv1.AskApiserverRequest{}); !errors.Is(err, rpcerr.ErrPrecondition) {
		t.Errorf("without an apiserver: %v", err)
	}
	if err := New(Deps{}).WatchAssignedConfiguration(nil, nil); !errors.Is(err, rpcerr.ErrPrecondition) {
		t.Errorf("where the cluster is no source: %v", err)
	}
}
