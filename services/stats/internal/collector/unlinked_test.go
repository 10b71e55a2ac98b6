package collector

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/machine"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// holder is a node with two containers, both of which this process is in.
type holder struct{ cgroups }

func holderNames() (first, second string) { return strings.Repeat("a", 64), strings.Repeat("b", 64) }

func (h holder) Walk(root string, _ func(string) bool) ([]string, error) {
	first, second := holderNames()
	return []string{root, path.Join(root, first), path.Join(root, second)}, nil
}

func (holder) PIDs(string) []int { return []int{os.Getpid()} }

func TestAContainerIsNamedThatHoldsAFileOpenWhichWasRemoved(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	names := &inventory.Table{}
	first, second := holderNames()
	change := inventory.Change{Snapshot: true}
	for _, id := range []string{first, second} {
		change.Containers = append(change.Containers, inventory.Container{ID: id, Name: id[:1], Pod: inventory.Pod{Namespace: "ns", Name: "p", UID: "u"}})
	}
	names.Apply(change)
	meter := sampler.New(sampler.Roots{Pods: "/kubepods"}, sampler.Deps{Cgroups: holder{}, Names: names, Proc: "/proc", Machine: machine.New(time.Hour)})
	found, all, err := New(Config{RootDir: dir}, Deps{Meter: meter, Names: names, Proc: "/proc"}).Unlinked(t.Context())
	if err != nil || !all || len(found) != 1 {
		t.Fatalf("%+v, %v, %v", found, all, err) // Who holds it, too, is not told of again.
	}
	if u := found[0]; u.PodUID != "u" || u.Container != "a" || u.Root.Bytes < 1<<20 || u.Root.Count < 1 || !strings.HasSuffix(u.Largest, "/gone") {
		t.Errorf("%+v", u)
	}
}
