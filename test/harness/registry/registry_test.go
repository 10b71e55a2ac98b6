package registry_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/polylet/polylet/test/harness/registry"
)

// A pull that was given up half way goes on where it ended, as with every
// registry of the world: the runtime asks for the rest of the blob.
func TestTheRestOfABlobCanBeAskedFor(t *testing.T) {
	r, err := registry.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	img, err := random.Image(4096, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Push(t.Context(), "some/image:v1", img); err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://%s/v2/some/image/blobs/%s", r.Addr(), digest)
	status, whole := get(t, url, "")
	if status != http.StatusOK || len(whole) < 4096 {
		t.Fatalf("the whole blob: status %d, %d bytes", status, len(whole))
	}
	for _, c := range []struct {
		header string
		status int
		want   []byte
	}{
		{"bytes=0-", http.StatusPartialContent, whole},
		{"bytes=100-", http.StatusPartialContent, whole[100:]},
		{"bytes=100-199", http.StatusPartialContent, whole[100:200]},
	} {
		if status, got := get(t, url, c.header); status != c.status || !bytes.Equal(got, c.want) {
			t.Errorf("Range %s: status %d with %d bytes, want %d with %d", c.header, status, len(got), c.status, len(c.want))
		}
	}
	if status, _ := get(t, url, fmt.Sprintf("bytes=%d-", len(whole)+1)); status != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("a range past the end: status %d, want 416", status)
	}
}

func get(t *testing.T, url, byteRange string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}
