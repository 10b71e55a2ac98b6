package images

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
)

func TestAnImageUnderTwoNamesIsTwoImages(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"agnhost:1", "agnhost:2"} {
		img, err := named(empty.Image, name)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[digest.String()]; ok {
			t.Errorf("%s and %s are the same image", other, name)
		}
		seen[digest.String()] = name
	}
}
