// Package exposition serves metrics: the five processes' families merged into
// one document, and documents of one process. It must never count anything
// itself, and one process that is away must never fail a scrape of the others.
package exposition

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Timeout bounds what one process may take to give its families; a scraper
// commonly gives up after ten seconds.
const Timeout = 5 * time.Second

// Source is one process.
type Source struct {
	// Service is its name.
	Service string
	// Gather gets its families.
	Gather func(ctx context.Context) ([]*dto.MetricFamily, error)
}

// Merged serves the families of all sources as one document.
func Merged(sources ...Source) http.Handler {
	kept := &compressors{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), Timeout)
		defer cancel()
		parts := make([]part, len(sources))
		var wait sync.WaitGroup
		for i, s := range sources {
			wait.Go(func() {
				families, err := s.Gather(ctx)
				if err != nil {
					klog.FromContext(ctx).V(2).Info("Scraping without a process", "service", s.Service, "err", err)
				}
				parts[i] = part{service: s.Service, families: families, up: err == nil}
			})
		}
		wait.Wait()
		encode(w, r, merge(parts), kept)
	})
}

// One serves the families of a single source; while it is away that is an error.
func One(s Source) http.Handler {
	kept := &compressors{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), Timeout)
		defer cancel()
		families, err := s.Gather(ctx)
		if err != nil {
			httperror.Error(w, s.Service, err)
			return
		}
		slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
		encode(w, r, families, kept)
	})
}

func encode(w http.ResponseWriter, r *http.Request, families []*dto.MetricFamily, c *compressors) {
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	w.Header().Set("Content-Type", string(format))
	out, done := c.compress(w, r)
	defer done()
	encoder := expfmt.NewEncoder(out, format)
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			klog.FromContext(r.Context()).V(2).Info("Metrics were not sent to the end", "family", f.GetName(), "err", err)
			return
		}
	}
	if closer, ok := encoder.(expfmt.Closer); ok {
		_ = closer.Close() // the client went away
	}
}

// Sizes of what is put together before it goes on. Encoders write a few bytes at
// a time, a compressor some hundred; each write to an HTTP/2 stream that does
// not fit into its 4 kB becomes a frame, and each frame a record of TLS, a
// system call and two changes of goroutine.
const (
	textBytes  = 16 << 10
	frameBytes = 32 << 10
)

// compressors are kept: one takes a megabyte, more than most documents.
type compressors struct{ pool sync.Pool }

// chain is what a document is written through. zip and text are not used for a
// client that does not take gzip: there text would be a second copy.
type chain struct {
	frames, text *bufio.Writer
	zip          *gzip.Writer
}

func (c *compressors) get(w io.Writer) *chain {
	x, ok := c.pool.Get().(*chain)
	if !ok {
		x = &chain{frames: bufio.NewWriterSize(w, frameBytes)}
		x.zip, _ = gzip.NewWriterLevel(x.frames, gzip.BestSpeed) // the level is a good one
		x.text = bufio.NewWriterSize(x.zip, textBytes)
		return x
	}
	x.frames.Reset(w)
	x.zip.Reset(x.frames)
	x.text.Reset(x.zip)
	return x
}

// compress wraps w, and compresses when the client takes gzip. Errors are not
// told by done: a client that went away needs no end.
func (c *compressors) compress(w http.ResponseWriter, r *http.Request) (out *bufio.Writer, done func()) {
	x := c.get(w)
	release := func() {
		x.frames.Reset(nil) // keeps no response alive
		c.pool.Put(x)
	}
	if !acceptsGzip(r) {
		return x.frames, func() {
			_ = x.frames.Flush()
			release()
		}
	}
	w.Header().Set("Content-Encoding", "gzip")
	return x.text, func() {
		_ = x.text.Flush()
		_ = x.zip.Close()
		_ = x.frames.Flush()
		release()
	}
}

func acceptsGzip(r *http.Request) bool {
	for _, value := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(value, ",") {
			name, params, _ := strings.Cut(strings.TrimSpace(part), ";")
			if name == "gzip" && strings.ReplaceAll(params, " ", "") != "q=0" {
				return true
			}
		}
	}
	return false
}

// Text serves a document that a process sends as text, in pieces.
func Text(service string, open func(ctx context.Context, accept string) (func() (contentType string, data []byte, err error), error)) http.Handler {
	kept := &compressors{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 6*Timeout)
		defer cancel()
		next, err := open(ctx, strings.Join(r.Header.Values("Accept"), ","))
		if err != nil {
			httperror.Error(w, service, err)
			return
		}
		contentType, data, err := next()
		if err != nil && err != io.EOF {
			httperror.Error(w, service, err)
			return
		}
		if contentType == "" {
			contentType = string(expfmt.NewFormat(expfmt.TypeTextPlain))
		}
		w.Header().Set("Content-Type", contentType)
		out, done := kept.compress(w, r)
		defer done()
		for err == nil {
			if _, err = out.Write(data); err != nil {
				return
			}
			_, data, err = next()
		}
		if err != io.EOF {
			// The status is sent: cutting the connection is the only way left to
			// tell that the document is not whole.
			panic(http.ErrAbortHandler)
		}
	})
}
