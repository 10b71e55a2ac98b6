package leftovers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestThePodsWhoseLogsAreOnTheDiskAreFoundByTheirDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"default_web_1234", "kube-system_proxy_abcd", "default_own_uid_of_mine", "two_parts", "no_uid_", "lost+found"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "default_file_5678"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("default_web_1234", filepath.Join(dir, "default_link_9999")); err != nil {
		t.Fatal(err)
	}
	if got, err := withLogs(dir); err != nil || !slices.Equal(got, []types.UID{"uid_of_mine", "1234", "abcd"}) {
		t.Errorf("found %v, %v", got, err)
	}
	if got, err := withLogs(filepath.Join(dir, "absent")); err != nil || got != nil {
		t.Errorf("found %v, %v where no directory is", got, err)
	}
}

type place struct {
	uids []types.UID
	err  error
}

func (p place) OnDisk() ([]types.UID, error) { return p.uids, p.err }
func (p place) List() ([]types.UID, error)   { return p.uids, p.err }

func TestEachPodIsNamedOnceAndAPlaceThatCannotBeListedHidesNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		dirs, cgroups place
		stand         error
		want          []types.UID
	}{
		"everywhere": {place{uids: []types.UID{"a", "b"}}, place{uids: []types.UID{"b", "c"}}, nil, []types.UID{"a", "b", "c"}},
		// A slice's name has an underscore for each dash: that of the pod a_b is no other's.
		"a UID with underscores":     {place{uids: []types.UID{"a_b"}}, place{uids: []types.UID{"a-b", "c-d"}}, nil, []types.UID{"a_b", "c-d"}},
		"no directories":             {place{err: errors.New("no disk")}, place{uids: []types.UID{"c"}}, nil, []types.UID{"c"}},
		"cgroups that never stand":   {place{uids: []types.UID{"a"}}, place{uids: []types.UID{"c"}}, context.Canceled, []types.UID{"a"}},
		"cgroups that say something": {place{uids: []types.UID{"a"}}, place{uids: []types.UID{"c"}, err: errors.New("not all")}, nil, []types.UID{"a", "c"}},
	} {
		f := Finder{LogsDir: t.TempDir(), Volumes: c.dirs, Cgroups: c.cgroups, Stand: func(context.Context) error { return c.stand }}
		if got := f.Find(t.Context()); !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
}
