package image

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
)

func TestWhyAnImageIsNotPulledIsSaidInTheRuntimesWords(t *testing.T) {
	unknown := func(text string) error { return status.Error(codes.Unknown, text) }
	for _, c := range []struct {
		errs             []error
		text, word, said string
	}{
		{[]error{unknown("no such host")}, "no such host", ErrImagePull, "no such host"},
		{[]error{status.Error(codes.NotFound, "gone")}, "rpc error: code = NotFound desc = gone", ErrImagePull, "rpc error: code = NotFound desc = gone"},
		{[]error{unknown("a"), unknown("b"), unknown("a")}, "[a, b]", ErrImagePull, "[a, b]"},
		{[]error{unknown("a"), unknown("a")}, "a", ErrImagePull, "a"},
		{[]error{unknown("RegistryUnavailable: 503")}, "RegistryUnavailable: 503", ErrRegistry, "image pull failed for busybox because the registry is unavailable: 503"},
		{[]error{unknown("SignatureValidationFailed")}, "SignatureValidationFailed", ErrSignature, "image pull failed for busybox because the signature validation failed"},
		{[]error{unknown("SignatureValidationFailed: RegistryUnavailable")}, "SignatureValidationFailed: RegistryUnavailable", ErrSignature, "image pull failed for busybox because the signature validation failed: RegistryUnavailable"},
		{[]error{unknown("of a: SignatureValidationFailed, of b: RegistryUnavailable")}, "of a: SignatureValidationFailed, of b: RegistryUnavailable", ErrRegistry, "of a: SignatureValidationFailed, of b: RegistryUnavailable"},
		{[]error{errors.New("pull: RegistryUnavailable")}, "pull: RegistryUnavailable", ErrRegistry, "pull: RegistryUnavailable"},
	} {
		err := failure(c.errs)
		if err.Error() != c.text {
			t.Errorf("%v: %q, want %q", c.errs, err, c.text)
		}
		if word, said := classify("busybox", err); word != c.word || said.Error() != c.said {
			t.Errorf("%v: %s, %q, want %s, %q", c.errs, word, said, c.word, c.said)
		}
	}
	if err := failure([]error{unknown("a"), status.Error(codes.Unavailable, "away")}); !cri.IsUnsure(err) {
		t.Errorf("what is unclear is taken for an answer: %v", err)
	}
}
