package daemon

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

const (
	// longestProfile bounds GetProfileRequest.seconds.
	longestProfile = 3600
	// profilePiece is how much of a profile goes into one message, in bytes: it
	// fits into the buffers of 32 KiB that gRPC keeps.
	profilePiece = 31 << 10
)

// GetProfile implements CommonService with net/http/pprof's handlers.
func (c *common) GetProfile(req *commonv1.GetProfileRequest, stream grpc.ServerStreamingServer[commonv1.GetProfileResponse]) error {
	call, err := profileRequest(req)
	if err != nil {
		return err
	}
	w := &profileWriter{stream: stream, header: http.Header{}, status: http.StatusOK}
	profileHandler(req.GetName()).ServeHTTP(w, call.WithContext(stream.Context()))
	return w.finish(req.GetName())
}

// profileRequest is the request as net/http/pprof reads it. A name is never
// taken for a path.
func profileRequest(req *commonv1.GetProfileRequest) (*http.Request, error) {
	if s := req.GetSeconds(); s < 0 || s > longestProfile {
		return nil, fmt.Errorf("%w: seconds is %d: use 0 to %d", rpcerr.ErrInvalid, s, longestProfile)
	}
	query := url.Values{}
	if s := req.GetSeconds(); s > 0 {
		query.Set("seconds", strconv.Itoa(int(s)))
	}
	if d := req.GetDebug(); d != 0 {
		query.Set("debug", strconv.Itoa(int(d)))
	}
	if req.GetGc() {
		query.Set("gc", "1")
	}
	raw := query.Encode()
	if req.GetName() == "symbol" {
		raw = req.GetSymbols()
	}
	return &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/debug/pprof/", RawQuery: raw}, Header: http.Header{}, Body: http.NoBody,
	}, nil
}

func profileHandler(name string) http.Handler {
	switch name {
	case "":
		return http.HandlerFunc(pprof.Index)
	case "cmdline":
		return http.HandlerFunc(pprof.Cmdline)
	case "profile":
		return http.HandlerFunc(pprof.Profile)
	case "symbol":
		return http.HandlerFunc(pprof.Symbol)
	case "trace":
		return http.HandlerFunc(pprof.Trace)
	default:
		return pprof.Handler(name)
	}
}

// profileWriter sends what a handler writes as messages.
type profileWriter struct {
	stream grpc.ServerStreamingServer[commonv1.GetProfileResponse]
	header http.Header
	status int
	sent   bool
	buffer bytes.Buffer
	err    error
}

func (w *profileWriter) Header() http.Header { return w.header }

func (w *profileWriter) WriteHeader(status int) { w.status = status }

func (w *profileWriter) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.buffer.Write(b)
	if w.status == http.StatusOK && w.buffer.Len() >= profilePiece {
		w.flush()
	}
	return len(b), w.err
}

func (w *profileWriter) flush() {
	// The message is encoded before Send returns.
	for w.err == nil && (w.buffer.Len() > 0 || !w.sent) {
		w.err = w.stream.Send(&commonv1.GetProfileResponse{ContentType: w.header.Get("Content-Type"), Data: w.buffer.Next(profilePiece)})
		w.sent = true
	}
}

func (w *profileWriter) finish(name string) error {
	if w.status == http.StatusOK {
		w.flush()
		return w.err
	}
	said := strings.TrimSpace(w.buffer.String())
	switch w.status {
	case http.StatusNotFound:
		return fmt.Errorf("%w: profile %q: %s", rpcerr.ErrNotFound, name, said)
	case http.StatusBadRequest:
		return fmt.Errorf("%w: profile %q: %s", rpcerr.ErrInvalid, name, said)
	default:
		return fmt.Errorf("%w: profile %q: %s", rpcerr.ErrInternal, name, said)
	}
}
