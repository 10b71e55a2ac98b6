package server

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/nodelog"
)

// stream keeps the data of what is sent.
type stream[F any, P interface {
	*F
	GetData() []byte
}] struct {
	grpc.ServerStreamingServer[F]
	ctx    context.Context
	pieces [][]byte
}

func (s *stream[F, P]) Context() context.Context { return s.ctx }

func (s *stream[F, P]) Send(f *F) error {
	s.pieces = append(s.pieces, bytes.Clone(P(f).GetData()))
	return nil
}

// logging is a server of a directory with one log of two and a half pieces.
func logging(t *testing.T) (s *Server, content []byte) {
	t.Helper()
	dir := t.TempDir()
	content = bytes.Repeat([]byte("0123456789abcdef"), logPiece*5/2/16)
	if err := os.WriteFile(filepath.Join(dir, "a.log"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return New(Deps{Logs: nodelog.NewDir(dir)}), content
}

func TestALogIsReadFromItsOffsetInPieces(t *testing.T) {
	s, content := logging(t)
	for offset, pieces := range map[int64]int{0: 3, logPiece: 2, int64(len(content)): 0, int64(len(content)) + 1: 0} {
		to := &stream[nodestatusv1.ReadNodeLogResponse, *nodestatusv1.ReadNodeLogResponse]{ctx: t.Context()}
		if err := s.ReadNodeLog(&nodestatusv1.ReadNodeLogRequest{Path: "a.log", OffsetBytes: offset}, to); err != nil {
			t.Fatal(err)
		}
		want := content[min(offset, int64(len(content))):]
		if got := bytes.Join(to.pieces, nil); len(to.pieces) != pieces || !bytes.Equal(got, want) {
			t.Errorf("from %d: %d bytes in %d pieces, want %d in %d", offset, len(got), len(to.pieces), len(want), pieces)
		}
	}
}

func TestAnOffsetBeforeTheBeginningIsRefused(t *testing.T) {
	s, _ := logging(t)
	to := &stream[nodestatusv1.ReadNodeLogResponse, *nodestatusv1.ReadNodeLogResponse]{ctx: t.Context()}
	if err := s.ReadNodeLog(&nodestatusv1.ReadNodeLogRequest{Path: "a.log", OffsetBytes: -1}, to); !errors.Is(err, rpcerr.ErrInvalid) || len(to.pieces) > 0 {
		t.Errorf("%v, %d pieces", err, len(to.pieces))
	}
}

func TestADirectorysEntriesAreListedWithIt(t *testing.T) {
	s, content := logging(t)
	res, err := s.StatNodeLog(t.Context(), &nodestatusv1.StatNodeLogRequest{})
	if err != nil || !res.GetFile().GetDirectory() || len(res.GetEntries()) != 1 {
		t.Fatalf("%v %v", res, err)
	}
	if e := res.GetEntries()[0]; e.GetName() != "a.log" || e.GetSizeBytes() != int64(len(content)) || e.GetDirectory() {
		t.Errorf("%v", e)
	}
}

func TestATimeThatIsNoneIsRefused(t *testing.T) {
	s, _ := logging(t)
	for name, req := range map[string]*nodestatusv1.QueryNodeLogsRequest{
		"since": {Services: []string{"a"}, SinceTime: &timestamppb.Timestamp{Nanos: -1}},
		"until": {Services: []string{"a"}, UntilTime: &timestamppb.Timestamp{Nanos: -1}},
	} {
		to := &stream[nodestatusv1.QueryNodeLogsResponse, *nodestatusv1.QueryNodeLogsResponse]{ctx: t.Context()}
		if err := s.QueryNodeLogs(req, to); !errors.Is(err, rpcerr.ErrInvalid) || len(to.pieces) > 0 {
			t.Errorf("%s: %v, %d pieces", name, err, len(to.pieces))
		}
	}
}
