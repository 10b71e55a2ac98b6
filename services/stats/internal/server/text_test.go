package server

import (
	"bytes"
	"errors"
	"testing"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

func TestADocumentThatIsNotThereIsRefused(t *testing.T) {
	s, to := newServer(t, &memory{}, "/proc"), &stream[statsv1.GetMetricsTextResponse]{ctx: t.Context()}
	if err := s.GetMetricsText(&statsv1.GetMetricsTextRequest{}, to); !errors.Is(err, rpcerr.ErrInvalid) || len(to.sent) > 0 {
		t.Errorf("%v, %d pieces", err, len(to.sent))
	}
}

func TestTheFirstPieceAloneNamesTheContentType(t *testing.T) {
	to := &stream[statsv1.GetMetricsTextResponse]{ctx: t.Context()}
	w := &pieceWriter{stream: to, contentType: "text/plain"}
	var got []byte
	for _, piece := range []string{"one ", "two"} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	for i, piece := range to.sent {
		if (piece.GetContentType() != "") != (i == 0) {
			t.Errorf("piece %d has the content type %q", i, piece.GetContentType())
		}
		got = append(got, piece.GetData()...)
	}
	if !bytes.Equal(got, []byte("one two")) {
		t.Errorf("%q", got)
	}
}
