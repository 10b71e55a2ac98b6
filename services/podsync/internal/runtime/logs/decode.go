package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// readBlock and writeBlock are the sizes of the two buffers of a reading, in
	// bytes. What is written becomes one message of a stream: gRPC keeps buffers
	// of 32 KiB, and for a message that is longer clears one of 1 MiB.
	readBlock  = 256 << 10
	writeBlock = 31 << 10
	// longestHeader is more than time, stream and tag of a line take.
	longestHeader = 128
	// longestJSON is the longest line of Docker's format that is understood.
	longestJSON = readBlock
	// fixedNano is the time with all nine digits, so that lines align and sort.
	fixedNano = "2006-01-02T15:04:05.000000000Z07:00"
)

// errLimit ends a reading that reached limitBytes.
var errLimit = errors.New("limit reached")

// decoder turns lines of a log file into what the client asked for. It takes
// the file in pieces, and a line of any length.
type decoder struct {
	w          io.Writer
	in         []byte
	have       int
	out        []byte
	timestamps bool
	since      time.Time
	stream     string
	// left is what limitBytes leaves; negative for no limit.
	left int64
	// inside is true behind the header of a line whose end was not seen yet;
	// wanted says whether that line is shown, partial whether it goes on in the next.
	inside, wanted, partial bool
	// open is true when what was shown last had no line end.
	open    bool
	scratch [40]byte
}

// longestAgo is how many seconds ago a line may be wanted from; no log is older.
const longestAgo = 100 * 365 * 24 * 60 * 60

func newDecoder(w io.Writer, o *v1.PodLogOptions, now time.Time) *decoder {
	d := &decoder{w: w, in: make([]byte, readBlock), out: make([]byte, 0, writeBlock), timestamps: o.Timestamps, left: -1}
	switch {
	case o.SinceTime != nil:
		d.since = o.SinceTime.Time
	case o.SinceSeconds != nil:
		d.since = now.Add(-time.Duration(min(*o.SinceSeconds, longestAgo)) * time.Second)
	}
	if o.LimitBytes != nil {
		d.left = *o.LimitBytes
	}
	if o.Stream != nil && *o.Stream != v1.LogStreamAll {
		d.stream = map[string]string{v1.LogStreamStdout: "stdout", v1.LogStreamStderr: "stderr"}[*o.Stream]
	}
	return d
}

// copy decodes r to its end and flushes. A line that is not complete yet stays
// in the buffer for the next call.
func (d *decoder) copy(ctx context.Context, r io.Reader) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(d.in[d.have:])
		d.have += n
		used, derr := d.decode(d.in[:d.have])
		copy(d.in, d.in[used:d.have])
		d.have -= used
		if derr != nil {
			return errors.Join(derr, d.flush())
		}
		if errors.Is(err, io.EOF) || (n == 0 && err == nil) {
			return d.flush()
		}
		if err != nil {
			return errors.Join(err, d.flush())
		}
	}
}

// decode takes what it can of b and says how much that was.
func (d *decoder) decode(b []byte) (int, error) {
	used := 0
	for used < len(b) {
		rest := b[used:]
		if !d.inside {
			n, ok, err := d.header(rest)
			if err != nil {
				return used, err
			}
			if !ok {
				return used, nil // the rest of the line is still to come
			}
			used += n
			continue
		}
		i := bytes.IndexByte(rest, '\n')
		piece := rest
		if i >= 0 {
			piece = rest[:i]
		}
		if err := d.show(piece); err != nil {
			return used, err
		}
		used += len(piece)
		if i < 0 {
			return used, nil
		}
		used++
		if err := d.endLine(); err != nil {
			return used, err
		}
	}
	return used, nil
}

// header reads "<time> <stream> <tag> " and says how long it is; not ok means
// that more bytes are needed. A line in another format is skipped.
func (d *decoder) header(b []byte) (n int, ok bool, err error) {
	end := bytes.IndexByte(b, '\n')
	if b[0] == '{' {
		return d.json(b, end)
	}
	line := b
	if end >= 0 {
		line = b[:end]
	}
	head := line[:min(len(line), longestHeader)]
	stamp, rest, ok1 := bytes.Cut(head, space)
	stream, rest, ok2 := bytes.Cut(rest, space)
	tag, rest, ok3 := bytes.Cut(rest, space)
	if ok2 && !ok3 && end >= 0 && len(line) < longestHeader {
		ok3 = true // an empty message may come without the last blank
	}
	if !ok1 || !ok2 || !ok3 {
		if end < 0 && len(line) < longestHeader {
			return 0, false, nil
		}
		d.inside, d.wanted, d.partial = true, false, false
		return 0, true, nil
	}
	d.inside = true
	d.partial = len(tag) > 0 && tag[0] == 'P'
	d.wanted, err = d.begin(stamp, stream)
	return len(head) - len(rest), true, err
}

var space = []byte{' '}

// begin decides whether a line is shown and writes its timestamp.
func (d *decoder) begin(stamp, stream []byte) (bool, error) {
	if d.stream != "" && string(stream) != d.stream {
		return false, nil
	}
	if d.since.IsZero() && !d.timestamps {
		return true, nil
	}
	if d.timestamps && d.since.IsZero() && len(stamp) == len(fixedNano)-len("07:00") && stamp[len(stamp)-1] == 'Z' {
		return true, d.stamp(stamp) // nine digits already: the usual line
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return false, nil // not a line of the format
	}
	if at.Before(d.since) {
		return false, nil
	}
	if !d.timestamps {
		return true, nil
	}
	return true, d.stamp(at.AppendFormat(d.scratch[:0], fixedNano))
}

// stamp writes a timestamp, unless the line goes on with the one before.
func (d *decoder) stamp(b []byte) error {
	if d.open {
		return nil
	}
	if err := d.write(b); err != nil {
		return err
	}
	return d.write(space)
}

func (d *decoder) show(piece []byte) error {
	if !d.wanted {
		return nil
	}
	if len(piece) > 0 {
		d.open = true
	}
	return d.write(piece)
}

func (d *decoder) endLine() error {
	d.inside = false
	if !d.wanted {
		return nil
	}
	if d.partial {
		d.open = true
		return nil
	}
	d.open = false
	return d.write(newline)
}

var newline = []byte{'\n'}

// json reads a whole line of Docker's format.
func (d *decoder) json(b []byte, end int) (int, bool, error) {
	if end < 0 {
		if len(b) < longestJSON {
			return 0, false, nil
		}
		d.inside, d.wanted, d.partial = true, false, false
		return 0, true, nil
	}
	var line struct {
		Log    string `json:"log"`
		Stream string `json:"stream"`
		Time   string `json:"time"`
	}
	if json.Unmarshal(b[:end], &line) != nil {
		return end + 1, true, nil
	}
	wanted, err := d.begin([]byte(line.Time), []byte(line.Stream))
	if wanted && err == nil {
		d.open = len(line.Log) > 0 && line.Log[len(line.Log)-1] != '\n'
		err = d.write([]byte(line.Log))
	}
	return end + 1, true, err
}

// write buffers b within the limit.
func (d *decoder) write(b []byte) error {
	if d.left >= 0 && int64(len(b)) >= d.left {
		d.out = append(d.out, b[:d.left]...)
		d.left = 0
		return errLimit
	}
	if d.left >= 0 {
		d.left -= int64(len(b))
	}
	if len(d.out)+len(b) > writeBlock {
		if err := d.flush(); err != nil {
			return err
		}
	}
	if len(b) >= writeBlock {
		_, err := d.w.Write(b)
		return err
	}
	d.out = append(d.out, b...)
	return nil
}

func (d *decoder) flush() error {
	if len(d.out) == 0 {
		return nil
	}
	_, err := d.w.Write(d.out)
	d.out = d.out[:0]
	return err
}
