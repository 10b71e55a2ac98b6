package peer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/polylet/polylet/internal/testkit/fakecsi"
)

func TestAConditionIsReadAsTheOlderSpecHasIt(t *testing.T) {
	for name, c := range map[string]struct {
		said     []byte
		abnormal bool
		message  string
	}{
		"well":    {said: fakecsi.SaidOf(false, "fine"), message: "fine"},
		"not":     {said: fakecsi.SaidOf(true, "the disk is gone"), abnormal: true, message: "the disk is gone"},
		"nothing": {},
		"cut off": {said: fakecsi.SaidOf(true, "the disk is gone")[:5]},
		"long":    {said: fakecsi.SaidOf(true, strings.Repeat("x", 5000)), abnormal: true, message: strings.Repeat("x", mostOfAMessage)},
		// What is no text cannot be sent on, nor how full the volume is with it.
		"cut in a letter": {said: fakecsi.SaidOf(true, "x"+strings.Repeat("é", 5000)), abnormal: true, message: "x" + strings.Repeat("é", mostOfAMessage/2-1)},
		"no text":         {said: fakecsi.SaidOf(true, "a\xffb"), abnormal: true, message: "ab"},
	} {
		if got := conditionIn(c.said); got.Abnormal != c.abnormal || got.Message != c.message {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzAConditionOfAnyDriverIsRead(f *testing.F) {
	f.Add(fakecsi.SaidOf(true, "gone"))
	f.Add([]byte{0x12, 0xff})
	f.Fuzz(func(t *testing.T, said []byte) {
		if got := conditionIn(said); len(got.Message) > mostOfAMessage || !utf8.ValidString(got.Message) {
			t.Errorf("%d bytes are kept: %q", len(got.Message), got.Message)
		}
	})
}
