package peer

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// logPiece is a ReadLogsResponse that stays in the buffers in which it came: a
// log of a gigabyte is passed on without a copy or an allocation per message.
type logPiece struct {
	buffers mem.BufferSlice
	// skip is how many bytes stand before the data.
	skip int
}

var _ io.WriterTo = (*logPiece)(nil)

// WriteTo writes the data and gives the buffers back; the piece is empty then.
func (p *logPiece) WriteTo(w io.Writer) (written int64, err error) {
	defer p.free()
	skip := p.skip
	for _, b := range p.buffers {
		data := b.ReadOnlyData()
		if skip >= len(data) {
			skip -= len(data)
			continue
		}
		n, err := w.Write(data[skip:])
		skip = 0
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (p *logPiece) free() {
	p.buffers.Free()
	p.buffers, p.skip = nil, 0
}

// take keeps a message that is nothing but its data, as podsync's are, and
// decodes any other.
func (p *logPiece) take(message mem.BufferSlice) error {
	p.free()
	if header, ok := onlyData(message); ok {
		message.Ref()
		p.buffers, p.skip = message, header
		return nil
	}
	decoded := new(podsyncv1.ReadLogsResponse)
	if err := protobuf.Unmarshal(message.Materialize(), decoded); err != nil {
		return fmt.Errorf("decode a piece of a log: %w", err)
	}
	p.buffers = mem.BufferSlice{mem.SliceBuffer(decoded.GetData())}
	return nil
}

// onlyData says how many bytes stand before the data of a message with no other
// field.
func onlyData(message mem.BufferSlice) (header int, ok bool) {
	const tag = 1<<3 | byte(protowire.BytesType) // ReadLogsResponse.data
	var head [1 + binary.MaxVarintLen32]byte
	have := 0
	for _, b := range message {
		have += copy(head[have:], b.ReadOnlyData())
	}
	if have == 0 || head[0] != tag {
		return 0, false
	}
	size, n := binary.Uvarint(head[1:have])
	return 1 + n, n > 0 && size == uint64(message.Len()-1-n) //nolint:gosec // not negative: n bytes were there
}

// pieceCodec is gRPC's own codec but for what it decodes into a logPiece.
type pieceCodec struct{ encoding.CodecV2 }

func newPieceCodec() pieceCodec { return pieceCodec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c pieceCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if p, ok := v.(*logPiece); ok {
		return p.take(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}
