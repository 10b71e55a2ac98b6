package rpc

import (
	"context"
	"testing"

	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

func TestAnAnswerWithAStringThatIsNoUTF8IsSent(t *testing.T) {
	text := structpb.NewStringValue
	odd := &structpb.Struct{Fields: map[string]*structpb.Value{
		"good":    text("ä"),
		"text":    text("a\xffb"),
		"key\xff": structpb.NewBoolValue(true),
		"list":    structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{text("ok"), text("\xfe")}}),
		"deep":    structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"\xc3": text("\xc3")}}),
	}}
	want := &structpb.Struct{Fields: map[string]*structpb.Value{
		"good":      text("ä"),
		"text":      text("a\uFFFDb"),
		"key\uFFFD": structpb.NewBoolValue(true),
		"list":      structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{text("ok"), text("\uFFFD")}}),
		"deep":      structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"\uFFFD": text("\uFFFD")}}),
	}}
	data, err := newAnswers().Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	got := new(structpb.Struct)
	if err := proto.Unmarshal(data.Materialize(), got); err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if odd.Fields["text"].GetStringValue() != "a\xffb" {
		t.Error("the message itself was changed, which others may read")
	}
}

// A list of strings is another kind of field than a list of messages.
func TestAnAnswersListOfStringsIsSent(t *testing.T) {
	data, err := newAnswers().Marshal(&podsyncv1.ExecHandler{Command: []string{"sh", "\xff"}})
	if err != nil {
		t.Fatal(err)
	}
	got := new(podsyncv1.ExecHandler)
	if err := proto.Unmarshal(data.Materialize(), got); err != nil || got.Command[0] != "sh" || got.Command[1] != "\uFFFD" {
		t.Errorf("got %q, %v", got.Command, err)
	}
}

// What somebody asks for is not another thing.
func TestARequestWithAStringThatIsNoUTF8IsRefused(t *testing.T) {
	asked := false
	c := start(t, ServerConfig{}, echo{check: func(context.Context) error { asked = true; return nil }})
	if _, err := c.Check(t.Context(), &healthgrpc.HealthCheckRequest{Service: "\xff"}); err == nil || asked {
		t.Errorf("error %v, asked %t", err, asked)
	}
}
