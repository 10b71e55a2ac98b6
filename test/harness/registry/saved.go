package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// referenceAnnotation has an image's name in the index of an OCI layout.
const referenceAnnotation = "org.opencontainers.image.ref.name"

// Save stores an image in a directory, for Open on a machine that cannot build it.
func Save(dir, reference string, img v1.Image) error {
	path, err := layout.FromPath(dir)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return fmt.Errorf("save image %s: %w", reference, err)
	}
	if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{referenceAnnotation: reference})); err != nil {
		return fmt.Errorf("save image %s: %w", reference, err)
	}
	return nil
}

// Open serves, like Start, the images that were saved in a directory, from there:
// nothing is read before it is asked for, and nothing can be pushed.
func Open(ctx context.Context, dir string) (*Registry, error) {
	r, err := start(registry.WithBlobHandler(savedBlobs(dir)))
	if err != nil {
		return nil, err
	}
	if err := r.nameSaved(ctx, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("serve the images saved in %s: %w", dir, err), r.Close())
	}
	return r, nil
}

func (r *Registry) nameSaved(ctx context.Context, dir string) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, descriptor := range manifest.Manifests {
		img, err := index.Image(descriptor.Digest)
		if err != nil {
			return err
		}
		ref, err := name.ParseReference(r.addr+"/"+descriptor.Annotations[referenceAnnotation], name.Insecure)
		if err != nil {
			return err
		}
		if err := remote.Put(ref, img, remote.WithContext(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// savedBlobs is the directory of an OCI layout.
type savedBlobs string

func (s savedBlobs) path(h v1.Hash) string {
	return filepath.Join(string(s), "blobs", h.Algorithm, h.Hex)
}

// Get implements registry.BlobHandler.
func (s savedBlobs) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	f, err := os.Open(s.path(h))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, registry.ErrNotFound
	}
	return f, err
}

// Stat implements registry.BlobStatHandler.
func (s savedBlobs) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	info, err := os.Stat(s.path(h))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, registry.ErrNotFound
	} else if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
