package handler

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/polylet/polylet/internal/dialctx"
)

// What an attempt reads of a connection, in bytes: besides a header, a TLS handshake as
// long as crypto/tls takes and a body's window for an HTTP answer, and for a gRPC one a
// header and a message. Frames that ask for an answer have a few bytes each and cost this
// process more than who sends them, whose CPU is bounded, and an attempt may take a day.
const (
	mostBeside = 320 << 10
	mostOfGRPC = 4 * answerLimit
)

// receiving returns a dial whose connections end when more came than that.
func receiving(dial dialctx.Dial, most int64) dialctx.Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		r := &received{Conn: conn, most: most}
		r.left.Store(most)
		return r, nil
	}
}

// received is a connection of which so much is read, and no more.
type received struct {
	net.Conn
	most int64
	left atomic.Int64
}

// Read implements net.Conn.
func (r *received) Read(p []byte) (int, error) {
	left := r.left.Load()
	if left <= 0 {
		return 0, fmt.Errorf("the server has sent more than %d bytes for one probe", r.most)
	}
	n, err := r.Conn.Read(p[:min(int64(len(p)), left)])
	r.left.Add(int64(-n))
	return n, err
}
