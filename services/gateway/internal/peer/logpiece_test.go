package peer

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// cut makes a message of buffers of the given size.
func cut(message []byte, size int) (slice mem.BufferSlice) {
	for len(message) > 0 {
		n := min(size, len(message))
		slice = append(slice, mem.SliceBuffer(message[:n]))
		message = message[n:]
	}
	return slice
}

func TestAPieceOfALogIsWrittenAsItWasSentHoweverItsBuffersAreCut(t *testing.T) {
	field := func(b []byte, number protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
	}
	for name, c := range map[string]struct {
		message []byte
		want    string
	}{
		"nothing":             {nil, ""},
		"no data":             {field(nil, 1, ""), ""},
		"a line":              {field(nil, 1, "line\n"), "line\n"},
		"a long piece":        {field(nil, 1, strings.Repeat("0123456789", 3000)), strings.Repeat("0123456789", 3000)},
		"a later field":       {field(field(nil, 1, "known"), 99, "from a newer podsync"), "known"},
		"an earlier field":    {field(field(nil, 99, "from a newer podsync"), 1, "known"), "known"},
		"the field twice":     {field(field(nil, 1, "first"), 1, "last"), "last"},
		"a length of 4 bytes": {append([]byte{0x0a, 0x82, 0x80, 0x80, 0x00}, "ab"...), "ab"},
	} {
		for _, size := range []int{1, 2, 3, 7, 1 << 14, 1 << 20} {
			var p logPiece
			var out bytes.Buffer
			if err := newPieceCodec().Unmarshal(cut(c.message, size), &p); err != nil {
				t.Errorf("%s in buffers of %d: %v", name, size, err)
				continue
			}
			if n, err := p.WriteTo(&out); err != nil || out.String() != c.want || n != int64(len(c.want)) {
				t.Errorf("%s in buffers of %d: %d bytes, %v, %.40q", name, size, n, err, out.String())
			}
			if n, err := p.WriteTo(&out); n != 0 || err != nil {
				t.Errorf("%s: written again: %d bytes, %v", name, n, err)
			}
		}
	}
}

func TestAPieceThatIsNoMessageIsAnError(t *testing.T) {
	for _, message := range []string{"\x0a", "\x0a\x05abc", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xff"} {
		if err := newPieceCodec().Unmarshal(cut([]byte(message), 1), new(logPiece)); err == nil {
			t.Errorf("%q is taken for a message", message)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestAWriterThatBreaksIsSaid(t *testing.T) {
	raw, err := proto.Marshal(&podsyncv1.ReadLogsResponse{Data: []byte("line\n")})
	if err != nil {
		t.Fatal(err)
	}
	var p logPiece
	if err := p.take(cut(raw, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.WriteTo(brokenWriter{}); err == nil || err.Error() != "gone" {
		t.Errorf("writing gives %v", err)
	}
}

func TestOtherMessagesAreDecodedAsEver(t *testing.T) {
	want := &podsyncv1.ReadLogsRequest{Container: "c", Options: []byte("o")}
	codec := newPieceCodec()
	raw, err := codec.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := new(podsyncv1.ReadLogsRequest)
	if err := codec.Unmarshal(raw, got); err != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzLogPiece(f *testing.F) {
	for _, seed := range []string{"", "\x0a\x03abc", "\x0a\x82\x80\x80\x00ab", "\x0a\x01a\x0a\x01b", "\x12\x01x", "\x0a\x05abc", "\xff\xff"} {
		f.Add([]byte(seed), 2)
	}
	f.Fuzz(func(t *testing.T, message []byte, size int) {
		decoded := new(podsyncv1.ReadLogsResponse)
		want := proto.Unmarshal(message, decoded)
		var p logPiece
		got := p.take(cut(message, max(1, size)))
		if (got == nil) != (want == nil) {
			t.Fatalf("%q: %v, protobuf says %v", message, got, want)
		}
		var out bytes.Buffer
		if _, err := p.WriteTo(&out); got == nil && (err != nil || !bytes.Equal(out.Bytes(), decoded.GetData())) {
			t.Fatalf("%q: %q, protobuf says %q", message, out.Bytes(), decoded.GetData())
		}
	})
}
