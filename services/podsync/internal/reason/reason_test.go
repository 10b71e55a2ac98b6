package reason

import (
	"errors"
	"fmt"
	"testing"
)

func TestAReasonTravelsWithItsErrorAndTheInnerOneStays(t *testing.T) {
	cause := errors.New("no space left on device")
	inner := fmt.Errorf("set up: %w", New("FailedMount", cause))
	for name, tc := range map[string]struct {
		err          error
		reason, text string
	}{
		"none":      {cause, "", "no space left on device"},
		"its own":   {New("ErrImagePull", cause), "ErrImagePull", "no space left on device"},
		"of within": {inner, "FailedMount", "set up: no space left on device"},
		"of both":   {New("RunContainerError", inner), "FailedMount", "set up: no space left on device"},
		"an empty":  {New("RunContainerError", New("", cause)), "RunContainerError", "no space left on device"},
	} {
		if Of(tc.err) != tc.reason || tc.err.Error() != tc.text || !errors.Is(tc.err, cause) {
			t.Errorf("%s: %q, %q, is the cause: %v", name, Of(tc.err), tc.err, errors.Is(tc.err, cause))
		}
	}
	if err := New("FailedMount", nil); err != nil || Of(nil) != "" {
		t.Errorf("without an error: %v", err)
	}
}
