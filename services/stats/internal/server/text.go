package server

import (
	"bufio"
	"fmt"

	"google.golang.org/grpc"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/stats/internal/exposition"
)

// pieceBytes is the size of a piece of a document.
const pieceBytes = 64 << 10

// GetMetricsText implements StatsService.
func (s *Server) GetMetricsText(r *statsv1.GetMetricsTextRequest, stream grpc.ServerStreamingServer[statsv1.GetMetricsTextResponse]) error {
	var document exposition.Document
	switch r.GetDocument() {
	case statsv1.MetricsDocument_METRICS_DOCUMENT_CADVISOR:
		document = s.Collector.Cadvisor(stream.Context())
	case statsv1.MetricsDocument_METRICS_DOCUMENT_RESOURCE:
		document = s.Collector.Resource(stream.Context())
	default:
		return fmt.Errorf("%w: metrics document %s; ask for CADVISOR or RESOURCE", rpcerr.ErrInvalid, r.GetDocument())
	}
	format := exposition.Negotiate(r.GetAccept())
	pieces := bufio.NewWriterSize(&pieceWriter{stream: stream, contentType: string(format)}, pieceBytes)
	if err := exposition.Write(pieces, format, document); err != nil {
		return err
	}
	return pieces.Flush()
}

// pieceWriter sends what is written; the first piece names the content type.
type pieceWriter struct {
	stream      grpc.ServerStreamingServer[statsv1.GetMetricsTextResponse]
	contentType string
}

func (w *pieceWriter) Write(p []byte) (int, error) {
	piece := &statsv1.GetMetricsTextResponse{ContentType: w.contentType, Data: p}
	w.contentType = ""
	// Send has encoded the piece when it returns; the buffer is free again.
	if err := w.stream.Send(piece); err != nil {
		return 0, err
	}
	return len(p), nil
}
