package reason

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
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

func TestErrorsThatDifferInIDsOnlyAreAlike(t *testing.T) {
	const sandbox = `failed to setup network for sandbox "%s": plugin type="bridge" failed (add): %s`
	first, second := strings.Repeat("445fb914", 8), strings.Repeat("25662432", 8)
	for name, tc := range map[string]struct {
		a, b  string
		alike bool
	}{
		"the same":             {"x", "x", true},
		"nothing":              {"", "", true},
		"something new":        {"", "445fb914", false},
		"another sandbox":      {fmt.Sprintf(sandbox, first, "no address"), fmt.Sprintf(sandbox, second, "no address"), true},
		"another cause":        {fmt.Sprintf(sandbox, first, "no address"), fmt.Sprintf(sandbox, second, "no plugin"), false},
		"two ids":              {first + "/d9da8bf0: full", second + "/6f78ab64: full", true},
		"ids that begin alike": {"445fb914", "445fb915", true},
		"another exit code":    {"exit code 1", "exit code 2", false},
		"another address":      {"dial tcp 10.0.0.1:443", "dial tcp 10.0.0.2:443", false},
		"a word of hex digits": {"deadbeef", "feedbeef", false},
		"a name with an id":    {"web-445fb914", "web-25662432", true},
		"more at its end":      {"of 445fb914", "of 445fb914: full", false},
		"text at an id's side": {"über445fb914", "über25662432", false},
	} {
		if Alike(tc.a, tc.b) != tc.alike || Alike(tc.b, tc.a) != tc.alike {
			t.Errorf("%s: %q and %q: alike %v", name, tc.a, tc.b, !tc.alike)
		}
	}
}

func TestWhenAnErrorIsToBeTriedAgainTravelsWithItBesideItsReason(t *testing.T) {
	at := time.Unix(1000, 0)
	err := New("FailedUnmount", fmt.Errorf("pod a: %w", Later(at, errors.New("no"))))
	if got := RetryAt(err); !got.Equal(at) || Of(err) != "FailedUnmount" || err.Error() != "pod a: no" {
		t.Errorf("%v, again at %v", err, got)
	}
	if got := RetryAt(errors.New("no")); !got.IsZero() || Later(at, nil) != nil {
		t.Errorf("of an error that does not say: %v", got)
	}
}
