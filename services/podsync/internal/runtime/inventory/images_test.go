package inventory

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/health"
)

var errTooLarge = status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max (17221680 vs. 16777216)")

// manyNames is a runtime with one image of more names than fit into a message.
type manyNames struct {
	all bool // they fit
	err error
}

func (m *manyNames) ListImages(context.Context) ([]*runtimeapi.Image, error) {
	if m.all {
		return []*runtimeapi.Image{{Id: "a"}, {Id: "b"}, {Id: "unknown"}}, nil
	}
	return nil, errTooLarge
}

func (m *manyNames) Image(_ context.Context, name string) (*runtimeapi.Image, error) {
	switch {
	case m.err != nil:
		return nil, m.err
	case name == "large:1":
		return nil, errTooLarge
	case name == "ambiguous":
		return nil, status.Error(codes.Unknown, `can not resolve "ambiguous" locally: ambiguous digest string`)
	case name == "gone:1":
		return nil, nil
	}
	return &runtimeapi.Image{Id: name[:1]}, nil
}

func TestAnImageWithNamesWithoutEndHidesNoOther(t *testing.T) {
	tracker := health.NewTracker(logr.Discard())
	runtime := &manyNames{}
	l := &Images{Client: runtime, Health: tracker, Names: func() ([]string, error) { return []string{"b:1", "a:1", "large:1", "gone:1", "ambiguous", "a:2"}, nil }}
	images, err := l.List(t.Context())
	if partial := (*Partial)(nil); !errors.As(err, &partial) || len(images) != 2 || images[0].GetId() != "a" || images[1].GetId() != "b" {
		t.Errorf("%v, %v", images, err)
	}
	if d := tracker.Dependencies(); len(d) != 1 || d[0].Ready || !strings.Contains(d[0].Message, "too large even by themselves: large:1") {
		t.Errorf("health says %+v", d)
	}
	if d := tracker.Dependencies(); !strings.Contains(d[0].Message, "cannot tell what these names mean: ambiguous") {
		t.Errorf("health says %+v", d)
	}
	runtime.err = status.Error(codes.DeadlineExceeded, "no answer")
	if images, err := l.List(t.Context()); err == nil || images != nil || !strings.Contains(err.Error(), `"a:1"`) {
		t.Errorf("one that nobody answers for: %v, %v", images, err)
	}
	runtime.err = errors.New("broken")
	if images, err := l.List(t.Context()); err == nil || images != nil {
		t.Errorf("when all are refused: %v, %v", images, err)
	}
	runtime.all = true
	if images, err := l.List(t.Context()); err != nil || len(images) != 3 || !tracker.Dependencies()[0].Ready {
		t.Errorf("when they fit: %v, %v, %+v", images, err, tracker.Dependencies())
	}
}
