package apparmor

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestTheKernelSaysWhichAppArmorProfilesItHas(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	yes, no, none := file("yes", "Y\n"), file("no", "N\n"), filepath.Join(dir, "none")
	loaded := file("profiles", "cri-containerd.apparmor.d (enforce)\na name (of mine) (complain)\n")
	for _, c := range []struct {
		enabled, profiles string
		off               bool
		want              []string
	}{
		{yes, loaded, false, []string{"a name (of mine)", "cri-containerd.apparmor.d"}},
		{yes, none, false, nil},
		{no, loaded, true, nil},
		{none, none, true, nil},
	} {
		off, got := read(c.enabled, c.profiles)
		if names := slices.Sorted(maps.Keys(got)); off != c.off || !slices.Equal(names, c.want) {
			t.Errorf("%s %s: off %v, profiles %v", c.enabled, c.profiles, off, names)
		}
	}
}
