package buildinfo

import (
	"strings"
	"testing"
)

func TestPeersMayDifferByOneRelease(t *testing.T) {
	for _, tc := range []struct {
		peer uint32
		ok   bool
	}{
		{Protocol, true},
		{Protocol + 1, true},
		{Protocol - 1, true},
		{Protocol + 2, false},
		{1 << 31, false},
	} {
		err := Compatible(tc.peer)
		if (err == nil) != tc.ok {
			t.Errorf("Compatible(%d) = %v, want ok=%v", tc.peer, err, tc.ok)
		}
		if err != nil && !strings.Contains(err.Error(), "install the same polylet") {
			t.Errorf("Compatible(%d) does not say what to do: %v", tc.peer, err)
		}
	}
}

func TestInfoNamesBothVersions(t *testing.T) {
	info := Get()
	if info.GoVersion == "" || info.Protocol != Protocol {
		t.Fatalf("incomplete: %+v", info)
	}
	line := info.String()
	for _, want := range []string{info.Version, KubernetesVersion} {
		if !strings.Contains(line, want) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
}
