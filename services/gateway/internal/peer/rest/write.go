package rest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/document"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Responses by what they hold: the mapping wraps them in types of its own.
type (
	podsResponse interface{ GetPods() [][]byte }
	versioned    interface {
		GetEpoch() uint64
		GetRevision() uint64
		GetUnchanged() bool
	}
	configResponse interface{ GetKubeletConfigurationJson() []byte }
)

// fields writes the field of a response that is the document, as it is.
type fields struct{}

var _ runtime.Marshaler = fields{}

var (
	errNoDocument = errors.New("the process sent no document")
	errUnasked    = errors.New("podsync says that nothing has changed since a list that it was not told of; restart it if this goes on")
)

// Marshal implements runtime.Marshaler.
func (fields) Marshal(v any) ([]byte, error) {
	raw, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%w: gateway.yaml maps a %T, which is not bytes", errNoDocument, v)
	}
	return raw, nil
}

// ContentType implements runtime.Marshaler.
func (fields) ContentType(any) string { return "application/json" }

// NewEncoder implements runtime.Marshaler.
func (f fields) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		raw, err := f.Marshal(v)
		if err == nil {
			_, err = w.Write(raw)
		}
		return err
	})
}

// Unmarshal implements runtime.Marshaler; no rule of gateway.yaml has a body.
func (fields) Unmarshal([]byte, any) error { return errors.ErrUnsupported }

// NewDecoder implements runtime.Marshaler, as Unmarshal.
func (fields) NewDecoder(io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(any) error { return errors.ErrUnsupported })
}

// badPods is an answer of podsync that is no list of pods.
type badPods struct{ error }

// pieces are buffers between a list and its stream: one pod is a small part of a
// frame.
type pieces struct{ pool sync.Pool }

const pieceBytes = 32 << 10

func (p *pieces) get(w io.Writer) *bufio.Writer {
	if b, ok := p.pool.Get().(*bufio.Writer); ok {
		b.Reset(w)
		return b
	}
	return bufio.NewWriterSize(w, pieceBytes)
}

func (p *pieces) put(b *bufio.Writer) {
	b.Reset(nil) // keeps no response alive
	p.pool.Put(b)
}

// streamPods writes a list of pods itself: the mapping would want it whole.
func (d *Documents) streamPods(ctx context.Context, w http.ResponseWriter, m proto.Message) error {
	res, ok := m.(podsResponse)
	if !ok {
		return nil
	}
	out := d.pieces.get(w)
	defer d.pieces.put(out)
	n, err := d.writePods(ctx, out, res)
	if err == nil {
		err = out.Flush()
	}
	switch {
	case err == nil:
		return nil
	case n == 0:
		return badPods{err}
	default:
		// The status is out: only a broken connection tells that this is not all.
		panic(http.ErrAbortHandler)
	}
}

func (d *Documents) writePods(ctx context.Context, w io.Writer, res podsResponse) (int64, error) {
	if method, _ := runtime.RPCMethod(ctx); method == podsyncv1.PodSyncService_ListRuntimePods_FullMethodName {
		return d.running.Write(w, res.GetPods(), document.Version{})
	}
	var version document.Version
	if told, ok := res.(versioned); ok {
		if told.GetUnchanged() {
			kept, _ := ctx.Value(keptKey{}).(*document.Kept)
			if kept == nil {
				return 0, errUnasked
			}
			return kept.Write(w)
		}
		if told.GetEpoch() != 0 {
			version = document.Version{Epoch: told.GetEpoch(), Revision: told.GetRevision()}
		}
	}
	return d.desired.Write(w, res.GetPods(), version)
}

// rewrite gives what fields writes, where that is not the field as it came.
func (d *Documents) rewrite(_ context.Context, m proto.Message) (any, error) {
	switch res := m.(type) {
	case podsResponse:
		return []byte(nil), nil // streamPods wrote it
	case configResponse:
		return document.Configz(res.GetKubeletConfigurationJson(), d.own), nil
	default:
		return m, nil
	}
}

// fail answers for a call that failed.
func (d *Documents) fail(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	var bad badPods
	if errors.As(err, &bad) {
		err = bad.error
	}
	err = rpcerr.FromStatus(err)
	status := httperror.Status(err)
	method, _ := runtime.RPCMethod(ctx)
	switch {
	case method == commonv1.CommonService_GetConfig_FullMethodName:
		w.Header().Set("Content-Type", fields{}.ContentType(nil))
		_, _ = w.Write(document.Configz(nil, d.own)) // a client that went away needs no answer
		return
	case method == statsv1.StatsService_GetSummary_FullMethodName && status == http.StatusInternalServerError:
		err = fmt.Errorf("Internal Error: %w", err) // the kubelet's text
	}
	httperror.ErrorStatus(w, serviceOf(method), status, err)
}

// serviceOf is the process that serves /polylet.<service>.v1.<Service>/<Method>.
func serviceOf(method string) string {
	if parts := strings.Split(method, "."); len(parts) > 2 {
		return parts[1]
	}
	return service.Gateway
}
