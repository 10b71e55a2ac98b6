package cri

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// carrying notes what each call carries; it fails when a container is started.
type carrying struct {
	grpc.ClientConnInterface
	carried []string
}

func (c *carrying) Invoke(ctx context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	sent, _ := metadata.FromOutgoingContext(ctx)
	c.carried = append(c.carried, strings.Join(sent.Get("traceparent"), " "))
	if strings.HasSuffix(method, "StartContainer") {
		return errors.New("no such program")
	}
	return nil
}

func TestACallCarriesTheHeaderOfItsSpanAndEndsIt(t *testing.T) {
	rt := &carrying{}
	var ends []string
	conn := Traced(rt, func(ctx context.Context, call string) (context.Context, *Span) {
		if strings.HasSuffix(call, "Status") {
			return ctx, nil
		}
		return ctx, &Span{Header: map[string]string{"traceparent": "of " + call}, End: func(err error) {
			ends = append(ends, call)
			if err != nil {
				ends = append(ends, err.Error())
			}
		}}
	})
	for _, call := range []string{"CreateContainer", "StartContainer", "Status"} {
		_ = conn.Invoke(t.Context(), "/RuntimeService/"+call, nil, nil)
	}
	if want := []string{"of RuntimeService/CreateContainer", "of RuntimeService/StartContainer", ""}; !slices.Equal(rt.carried, want) {
		t.Errorf("the runtime got %q, want %q", rt.carried, want)
	}
	if want := []string{"RuntimeService/CreateContainer", "RuntimeService/StartContainer", "no such program"}; !slices.Equal(ends, want) {
		t.Errorf("%q, want %q", ends, want)
	}
}
