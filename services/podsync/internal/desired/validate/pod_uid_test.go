package validate

import (
	"strings"
	"testing"
)

func TestAUIDNamesDirectoriesAndCgroups(t *testing.T) {
	for uid, want := range map[string]bool{
		"": false, "a": true, "7f3b6f4e-0c4e-4c7e-9a53-6a1f6d1e2b3c": true, "A.b_c-9": true, ".a": false, "-a": false, "_a": false,
		"a/b": false, "a b": false, "a\x00": false, "ä": false, "..": false, strings.Repeat("a", longestUID): true, strings.Repeat("a", longestUID+1): false,
	} {
		if got := isPlainUID(uid); got != want {
			t.Errorf("%q: %v", uid, got)
		}
	}
}
