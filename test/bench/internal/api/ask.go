package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/polylet/polylet/test/bench/internal/stage"
)

// askWithin bounds one request for a document.
const askWithin = 30 * time.Second

// asker asks the node's own server as the cluster's administrator, and takes
// compressed answers, as Prometheus and metrics-server do.
type asker struct {
	base   string
	config *rest.Config
	client *http.Client
}

// answer is one response; at is when it was there.
type answer struct {
	raw        []byte
	compressed bool
	at         time.Time
}

func newAsker(st *stage.Stage) (*asker, error) {
	config := rest.CopyConfig(st.Cluster.Rest)
	config.Host = st.Node.URL
	config.Insecure, config.CAData, config.CAFile = true, nil, "" // the node's own certificate
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", st.Node.URL, err)
	}
	return &asker{base: st.Node.URL, config: config, client: &http.Client{Transport: transport, Timeout: askWithin}}, nil
}

// get reads a document to its end; the time is that until the last byte, without
// unpacking.
func (a *asker) get(ctx context.Context, path string) (answer, time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return answer{}, 0, err
	}
	req.Header.Set("Accept-Encoding", "gzip")
	began := time.Now()
	res, err := a.client.Do(req)
	if err != nil {
		return answer{}, 0, fmt.Errorf("ask for %s: %w", path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	took := time.Since(began)
	if err != nil {
		return answer{}, 0, fmt.Errorf("read %s: %w", path, err)
	}
	if res.StatusCode != http.StatusOK {
		return answer{}, 0, fmt.Errorf("ask for %s: %s: %.300s", path, res.Status, raw)
	}
	return answer{raw: raw, compressed: res.Header.Get("Content-Encoding") == "gzip", at: time.Now()}, took, nil
}

func (a answer) body() ([]byte, error) {
	if !a.compressed {
		return a.raw, nil
	}
	unpack, err := gzip.NewReader(bytes.NewReader(a.raw))
	if err != nil {
		return nil, fmt.Errorf("unpack %d bytes: %w", len(a.raw), err)
	}
	return io.ReadAll(unpack)
}

// keepBody writes a document to Settings.Bodies, for a person to compare.
func (a *apiStage) keepBody(path string, body []byte) error {
	if a.s.Bodies == "" {
		return nil
	}
	if err := os.MkdirAll(a.s.Bodies, 0o755); err != nil {
		return err
	}
	name := a.c.Name + strings.ReplaceAll(path, "/", "-")
	return os.WriteFile(filepath.Join(a.s.Bodies, name), body, 0o644)
}
