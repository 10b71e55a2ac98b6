package csi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// saidOf is an answer's condition as a driver of the older spec sends it.
func saidOf(abnormal bool, message string) []byte {
	var inner []byte
	inner = protowire.AppendTag(inner, fieldAbnormal, protowire.VarintType)
	inner = protowire.AppendVarint(inner, protowire.EncodeBool(abnormal))
	inner = protowire.AppendTag(inner, fieldMessage, protowire.BytesType)
	inner = protowire.AppendString(inner, message)
	out := protowire.AppendTag(nil, fieldCondition, protowire.BytesType)
	return protowire.AppendBytes(out, inner)
}

func TestAConditionIsReadAsTheOlderSpecHasIt(t *testing.T) {
	for name, c := range map[string]struct {
		said     []byte
		abnormal bool
		message  string
	}{
		"well":    {said: saidOf(false, "fine"), message: "fine"},
		"not":     {said: saidOf(true, "the disk is gone"), abnormal: true, message: "the disk is gone"},
		"nothing": {},
		"cut off": {said: saidOf(true, "the disk is gone")[:5]},
		"long":    {said: saidOf(true, strings.Repeat("x", 5000)), abnormal: true, message: strings.Repeat("x", mostOfAMessage)},
		// What is no text cannot be sent on, nor how full the volume is with it.
		"cut in a letter": {said: saidOf(true, "x"+strings.Repeat("é", 5000)), abnormal: true, message: "x" + strings.Repeat("é", mostOfAMessage/2-1)},
		"no text":         {said: saidOf(true, "a\xffb"), abnormal: true, message: "ab"},
	} {
		if got := conditionIn(c.said); got.Abnormal != c.abnormal || got.Message != c.message {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzAConditionOfAnyDriverIsRead(f *testing.F) {
	f.Add(saidOf(true, "gone"))
	f.Add([]byte{0x12, 0xff})
	f.Fuzz(func(t *testing.T, said []byte) {
		if got := conditionIn(said); len(got.Message) > mostOfAMessage || !utf8.ValidString(got.Message) {
			t.Errorf("%d bytes are kept: %q", len(got.Message), got.Message)
		}
	})
}
