package registry

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func TestSavedImagesAreServedUnderTheirNames(t *testing.T) {
	dir := t.TempDir() + "/saved"
	wanted := map[string]string{}
	for _, reference := range []string{"library/busybox:1.36", "kube-apiserver:v1"} {
		img, err := random.Image(1000, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := Save(dir, reference, img); err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		wanted[reference] = digest.String()
	}
	r, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for reference, want := range wanted {
		ref, err := name.ParseReference(r.Addr()+"/"+reference, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		img, err := remote.Image(ref)
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := img.Digest(); err != nil || digest.String() != want {
			t.Errorf("%s has the digest %v, %v; want %s", reference, digest, err, want)
		}
		if err := validate.Image(img); err != nil { // reads every blob
			t.Errorf("%s: %v", reference, err)
		}
	}
	if _, err := Open(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory without images is served")
	}
}
