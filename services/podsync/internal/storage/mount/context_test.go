package mount

import "testing"

func TestALabelThatAFilesystemIsMountedWithIsFoundAmongItsOptions(t *testing.T) {
	for options, want := range map[string]string{
		"": "", "rw,seclabel": "", `rw,fscontext="u:r:t:s0:c1,c2"`: "",
		`rw,context="u:r:t:s0:c1,c2",errors=remount-ro`: "u:r:t:s0:c1,c2",
		`context=u:r:t:s0,relatime`:                     "u:r:t:s0",
		`rw,context=u:r:t:s0`:                           "u:r:t:s0",
	} {
		if got := contextIn(options); got != want {
			t.Errorf("%s: %q, want %q", options, got, want)
		}
	}
	if label, err := Context(t.TempDir()); label != "" || err != nil {
		t.Errorf("where nothing is mounted: %q, %v", label, err)
	}
}
