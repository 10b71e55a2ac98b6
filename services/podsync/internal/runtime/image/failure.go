package image

import (
	"fmt"
	"slices"
	"strings"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

// failed is why an image was not pulled, in the words that people see; the error of the last
// try says what kind it is.
type failed struct {
	text string
	last error
}

func (f failed) Error() string { return f.text }
func (f failed) Unwrap() error { return f.last }

// failure is what the tries of a pull came to, each said once.
func failure(errs []error) error {
	var texts []string
	for _, err := range errs {
		text := cri.Words(err)
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	f := failed{text: strings.Join(texts, ", "), last: errs[len(errs)-1]}
	if len(texts) > 1 {
		f.text = "[" + f.text + "]"
	}
	return f
}

// classify finds the waiting reason that a runtime gave in words, and says what it means.
func classify(image string, err error) (word string, said error) {
	words := []struct{ word, means string }{{ErrRegistry, "the registry is unavailable"}, {ErrSignature, "the signature validation failed"}}
	for _, w := range words {
		if rest, first := strings.CutPrefix(err.Error(), w.word); first {
			return w.word, failed{text: fmt.Sprintf("image pull failed for %s because %s%s", image, w.means, rest), last: err}
		}
	}
	for _, w := range words {
		if strings.Contains(err.Error(), w.word) {
			return w.word, err
		}
	}
	return ErrImagePull, err
}
