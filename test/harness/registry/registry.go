// Package registry serves images on loopback from the test's own process, and
// can be told to fail. It must never fetch anything from elsewhere.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// LocalName is the registry name that tests use for their own images; the
// runtime's host files send it here.
const LocalName = "registry.polylet.test"

// pushWithin bounds the upload of one image over loopback.
const pushWithin = 2 * time.Minute

// Fault answers a request itself by returning true. It may also just take its
// time, or write an error.
type Fault func(http.ResponseWriter, *http.Request) (answered bool)

// Registry is a running image registry. It is safe for use by several
// goroutines.
type Registry struct {
	addr   string
	server *http.Server

	mu    sync.Mutex
	fault Fault
}

// Start serves on a free port of loopback until Close. With dir, blobs are kept
// there instead of in memory.
func Start(dir string) (*Registry, error) {
	if dir == "" {
		return start()
	}
	return start(registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)))
}

func start(options ...registry.Option) (*Registry, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start an image registry: %w", err)
	}
	options = append(options, registry.Logger(log.New(io.Discard, "", 0)))
	r := &Registry{addr: listener.Addr().String()}
	r.server = &http.Server{Handler: r.handler(registry.New(options...)), ReadHeaderTimeout: 10 * time.Second}
	go r.server.Serve(listener) // ends with ErrServerClosed in Close
	return r, nil
}

// At serves the same images at a further address of the machine, for a runtime
// that cannot reach loopback: what it returns is the registry as seen there. It
// ends with the registry.
func (r *Registry) At(host string) (*Registry, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("serve images at %s: %w", host, err)
	}
	go r.server.Serve(listener) // ends with ErrServerClosed in Close
	return &Registry{addr: listener.Addr().String(), server: r.server}, nil
}

// Addr is the host and port.
func (r *Registry) Addr() string { return r.addr }

// SetFault puts the fault before every request; nil takes it away.
func (r *Registry) SetFault(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// Push stores an image under a repository and tag such as "library/busybox:1".
func (r *Registry) Push(ctx context.Context, reference string, img v1.Image) error {
	ctx, cancel := context.WithTimeout(ctx, pushWithin)
	defer cancel()
	ref, err := name.ParseReference(r.addr+"/"+reference, name.Insecure)
	if err != nil {
		return fmt.Errorf("push %s: %w", reference, err)
	}
	if err := remote.Write(ref, img, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("push %s to %s: %w", reference, r.addr, err)
	}
	return nil
}

// suiteRegistry is where the upstream suite runs a registry of its own.
const suiteRegistry = "localhost:5000"

// WriteHosts writes containerd's host files into dir, so that every registry
// name, known or not, is answered here and no pull leaves the machine. The
// upstream suite's own registry, on the machine too, answers for itself.
func (r *Registry) WriteHosts(dir string) error {
	for host, addr := range map[string]string{
		"_default": r.addr, "docker.io": r.addr, "registry.k8s.io": r.addr, LocalName: r.addr, suiteRegistry: suiteRegistry,
	} {
		content := fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+addr, "http://"+addr)
		if err := os.MkdirAll(filepath.Join(dir, host), 0o755); err != nil {
			return fmt.Errorf("write registry host files: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, host, "hosts.toml"), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write registry host files: %w", err)
		}
	}
	return nil
}

// Close stops serving at once.
func (r *Registry) Close() error {
	if err := r.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("stop the image registry: %w", err)
	}
	return nil
}

func (r *Registry) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		fault := r.fault
		r.mu.Unlock()
		if fault != nil && fault(w, req) {
			return
		}
		closeRange(req, next)
		next.ServeHTTP(w, req)
	})
}

// closeRange names the last byte of a range that is open at its end. A runtime
// asks for such a range when it goes on with a pull that was given up half way,
// and the registry below understands closed ones only.
func closeRange(req *http.Request, next http.Handler) {
	var first int64
	value, open := strings.CutSuffix(req.Header.Get("Range"), "-")
	if _, err := fmt.Sscanf(value, "bytes=%d", &first); err != nil || !open || req.Method != http.MethodGet {
		return
	}
	head := req.Clone(req.Context())
	head.Method = http.MethodHead
	head.Header.Del("Range")
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, head)
	if size, err := strconv.ParseInt(answer.Header().Get("Content-Length"), 10, 64); err == nil && answer.Code == http.StatusOK && first < size {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, size-1))
	}
}
