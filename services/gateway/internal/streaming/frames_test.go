package streaming

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// sent is a client's frame.
func sent(operation byte, key [4]byte, content []byte) []byte {
	out := []byte{operation}
	switch n := len(content); {
	case n < frameShort:
		out = append(out, frameMasked|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, frameMasked|frameShort), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, frameMasked|frameLong), uint64(n))
	}
	out = append(out, key[:]...)
	for i, b := range content {
		out = append(out, b^key[i%4])
	}
	return out
}

// received is what comes of frames: that of each channel, and the control frames.
func received(t *testing.T, raw []byte) (channels map[byte][]byte, controls [][]byte) {
	t.Helper()
	channels = map[byte][]byte{}
	for len(raw) > 0 {
		operation, length, at := raw[0], int(raw[1]&frameLength), 2
		switch length {
		case frameShort:
			length, at = int(binary.BigEndian.Uint16(raw[2:])), 4
		case frameLong:
			length, at = int(binary.BigEndian.Uint64(raw[2:])), 10
		}
		key := raw[at : at+4]
		content := bytes.Clone(raw[at+4 : at+4+length])
		for i := range content {
			content[i] ^= key[i%4]
		}
		raw = raw[at+4+length:]
		switch {
		case operation&frameControl != 0:
			controls = append(controls, content)
		case length > longestFrame:
			t.Errorf("a frame of %d bytes", length)
		case length > 0:
			channels[content[0]] = append(channels[content[0]], content[1:]...)
		}
	}
	return channels, controls
}

func TestLongFramesBecomeShortOnesWithTheSameContent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is to be the same each time
	for _, length := range []int{0, 1, 2, 125, 126, 1000, longestFrame - 1, longestFrame, longestFrame + 1, 2 * longestFrame, 1 << 16, 1<<20 + 3} {
		content := make([]byte, length)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		key := [4]byte{1, 2, 3, byte(length)}
		size := `{"Width":80,"Height":24}`
		var raw []byte
		for _, frame := range [][]byte{
			sent(0x82, key, append([]byte{0}, content...)), sent(0x89, key, []byte("ping")),
			sent(0x82, key, append([]byte{resizeChannel}, size...)), sent(0x82, key, nil), sent(0x82, key, []byte{resizeChannel}),
			sent(0x02, key, append([]byte{0}, content...)), sent(0x80, key, append([]byte{0}, content...)), sent(0x82, key, []byte{255, 0}),
		} {
			raw = append(raw, frame...)
		}
		for name, from := range map[string]io.Reader{
			"whole": bytes.NewReader(raw), "halves": iotest.HalfReader(bytes.NewReader(raw)), "bytes": iotest.OneByteReader(bytes.NewReader(raw)),
		} {
			got, err := io.ReadAll(&shortFrames{from: from})
			if err != nil {
				t.Fatalf("%d bytes, %s: %v", length, name, err)
			}
			channels, controls := received(t, got)
			if !bytes.Equal(channels[0], bytes.Repeat(content, 3)) || string(channels[resizeChannel]) != size || !bytes.Equal(channels[255], []byte{0}) {
				t.Errorf("%d bytes, %s: what comes is something else", length, name)
			}
			if len(controls) != 1 || string(controls[0]) != "ping" {
				t.Errorf("%d bytes, %s: controls %q", length, name, controls)
			}
		}
	}
}

func TestWhatIsNoSizeOfATerminalEndsTheSession(t *testing.T) {
	for name, value := range map[string]string{
		"long": `{"x":"` + strings.Repeat("x", longestResize) + `"}`, "a part": `{"x":"`, "no JSON": "80x24",
	} {
		raw := sent(0x82, [4]byte{1, 2, 3, 4}, append([]byte{resizeChannel}, value...))
		if _, err := io.ReadAll(&shortFrames{from: bytes.NewReader(raw)}); !errors.Is(err, errResize) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzFramesAreBounded: whatever comes, little is held, and reading ends.
func FuzzFramesAreBounded(f *testing.F) {
	f.Add(sent(0x82, [4]byte{1, 2, 3, 4}, append([]byte{0}, make([]byte, 100)...)))
	f.Add([]byte{0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1})
	f.Add([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, raw []byte) {
		frames := &shortFrames{from: bytes.NewReader(raw)}
		_, _ = io.Copy(io.Discard, frames)
		if cap(frames.out) > 4<<10 {
			t.Errorf("%d bytes are held", cap(frames.out))
		}
	})
}
