package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/nodestatus/internal/nodelog"
)

// logPiece is how much of a log goes into one message, in bytes: it fits into
// the buffers of 32 KiB that gRPC keeps.
const logPiece = 31 << 10

// StatNodeLog implements NodeStatusService.
func (s *Server) StatNodeLog(_ context.Context, req *nodestatusv1.StatNodeLogRequest) (*nodestatusv1.StatNodeLogResponse, error) {
	self, entries, err := s.logs.Stat(req.GetPath())
	if err != nil {
		return nil, err
	}
	resp := &nodestatusv1.StatNodeLogResponse{File: logFile(self)}
	for _, e := range entries {
		resp.Entries = append(resp.Entries, logFile(e))
	}
	return resp, nil
}

func logFile(e nodelog.Entry) *nodestatusv1.NodeLogFile {
	return &nodestatusv1.NodeLogFile{Name: e.Name, SizeBytes: e.Size, ModifiedTime: timestamppb.New(e.Modified), Directory: e.Directory}
}

// ReadNodeLog implements NodeStatusService.
func (s *Server) ReadNodeLog(req *nodestatusv1.ReadNodeLogRequest, stream grpc.ServerStreamingServer[nodestatusv1.ReadNodeLogResponse]) error {
	if req.GetOffsetBytes() < 0 {
		return fmt.Errorf("%w: the offset %d is less than 0", rpcerr.ErrInvalid, req.GetOffsetBytes())
	}
	f, err := s.logs.Open(req.GetPath())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	piece := make([]byte, logPiece)
	for at := req.GetOffsetBytes(); ; {
		n, err := f.ReadAt(piece, at)
		at += int64(n)
		if n > 0 {
			// The message is encoded before Send returns.
			if err := stream.Send(&nodestatusv1.ReadNodeLogResponse{Data: piece[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read node log %q: %w", req.GetPath(), err)
		}
	}
}

// QueryNodeLogs implements NodeStatusService.
func (s *Server) QueryNodeLogs(req *nodestatusv1.QueryNodeLogsRequest, stream grpc.ServerStreamingServer[nodestatusv1.QueryNodeLogsResponse]) error {
	q := nodelog.Query{Services: req.GetServices(), TailLines: req.TailLines, Boot: req.Boot, Pattern: req.GetPattern()}
	for at, to := range map[*timestamppb.Timestamp]*time.Time{req.GetSinceTime(): &q.Since, req.GetUntilTime(): &q.Until} {
		if at == nil {
			continue
		}
		if err := at.CheckValid(); err != nil {
			return fmt.Errorf("%w: %w", rpcerr.ErrInvalid, err)
		}
		*to = at.AsTime()
	}
	return s.query.Query(stream.Context(), q, queryWriter{stream})
}

type queryWriter struct {
	stream grpc.ServerStreamingServer[nodestatusv1.QueryNodeLogsResponse]
}

// Write implements io.Writer.
func (w queryWriter) Write(p []byte) (int, error) {
	if err := w.stream.Send(&nodestatusv1.QueryNodeLogsResponse{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}
