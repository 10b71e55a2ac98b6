package streaming

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// longestFrame is how many bytes a WebSocket frame has at most that reaches the
	// translator, which holds each as a whole. Longer ones are made into several.
	longestFrame = 32 << 10
	// refusedFrame is how long a frame is that the translator refuses itself.
	refusedFrame = 32 << 20
	// resizeChannel is that on which a client says how large its terminal is, and
	// longestResize how many bytes of that there are in a frame: the translator reads
	// one value, however long it is. Source: k8s.io/apimachinery/pkg/util/remotecommand.
	resizeChannel = 4
	longestResize = 1 << 10
)

// Source: RFC 6455, 5.2.
const (
	frameControl = 0x8 // of the operation: pings and the like, which are short
	frameMasked  = 0x80
	frameLength  = 0x7f
	frameShort   = 126 // the length stands in the next two bytes
	frameLong    = 127 // the length stands in the next eight bytes
	frameKey     = 4
)

// errResize ends a session.
var errResize = errors.New("a size of a terminal is no JSON value of a few bytes")

// shortFrames are the frames that a client sends on a channelled WebSocket, of which
// each begins with its channel: what stands in long ones, in shorter ones. A client
// could else have the translator hold 32 MiB for each session, and without end as the
// size of its terminal. For one reader.
type shortFrames struct {
	from io.Reader

	out  []byte // to be read before more of from
	left uint64 // of from's bytes that pass as they are
	// Of a long frame: what is left after that, its operation, its channel, where in
	// its content that is, and its key.
	rest      uint64
	operation byte
	channel   byte
	at        uint64
	key       [frameKey]byte
}

// Read implements io.Reader.
func (f *shortFrames) Read(p []byte) (int, error) {
	for len(p) > 0 {
		switch {
		case len(f.out) > 0:
			n := copy(p, f.out)
			f.out = f.out[n:]
			return n, nil
		case f.left > 0:
			n, err := f.from.Read(p[:min(uint64(len(p)), f.left)])
			f.left -= uint64(n) //nolint:gosec // it is not negative
			return n, err
		case f.rest > 0:
			f.piece()
		default:
			if err := f.frame(); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil
}

// frame reads the beginning of the next frame.
func (f *shortFrames) frame() error {
	head, err := f.more(nil, 2)
	if err != nil {
		return err // also io.EOF, between two frames
	}
	length := uint64(head[1] & frameLength)
	switch length {
	case frameShort:
		if head, err = f.more(head, 2); err == nil {
			length = uint64(binary.BigEndian.Uint16(head[2:]))
		}
	case frameLong:
		if head, err = f.more(head, 8); err == nil {
			length = binary.BigEndian.Uint64(head[2:])
		}
	}
	if err != nil {
		return err
	}
	if head[0]&frameControl != 0 || head[1]&frameMasked == 0 || length == 0 || length > refusedFrame {
		f.out, f.left = head, length
		if head[1]&frameMasked != 0 {
			f.left += frameKey
		}
		return nil
	}
	if head, err = f.more(head, frameKey+1); err != nil {
		return err
	}
	content := len(head) - 1
	f.key = [frameKey]byte(head[content-frameKey:])
	f.channel = head[content] ^ f.key[0]
	switch {
	case f.channel == resizeChannel:
		return f.resize(head, content, length)
	case length > longestFrame:
		f.operation, f.at, f.rest = head[0], 1, length-1
		return nil
	}
	f.out, f.left = head, length-1
	return nil
}

// more reads n bytes behind those that are there.
func (f *shortFrames) more(had []byte, n int) ([]byte, error) {
	out := append(had, make([]byte, n)...)
	_, err := io.ReadFull(f.from, out[len(had):])
	if err != nil && len(had) > 0 {
		err = fmt.Errorf("a WebSocket frame ends early: %w", err)
	}
	return out, err
}

// piece begins a frame of what is left of a long one. Its key is such that the
// content is passed on as it came.
func (f *shortFrames) piece() {
	n := min(f.rest, longestFrame-1)
	var key [frameKey]byte
	for i := range key {
		key[i] = f.key[(f.at+uint64(i)+frameKey-1)%frameKey] //nolint:gosec // it is not negative
	}
	f.out = append(f.out[:0], f.operation, frameMasked|frameShort)
	f.out = binary.BigEndian.AppendUint16(f.out, uint16(n+1)) //nolint:gosec // at most longestFrame
	f.out = append(append(f.out, key[:]...), f.channel^key[0])
	f.left, f.rest, f.at = n, f.rest-n, f.at+n
}

// resize lets a frame with a size pass if it is a whole value.
func (f *shortFrames) resize(head []byte, content int, length uint64) error {
	if length > longestResize {
		return errResize
	}
	head, err := f.more(head, int(length)-1) //nolint:gosec // it is short
	if err != nil {
		return err
	}
	value := bytes.Clone(head[content+1:])
	for i := range value {
		value[i] ^= f.key[(i+1)%frameKey]
	}
	if len(value) > 0 && !json.Valid(value) {
		return errResize
	}
	f.out = head
	return nil
}
