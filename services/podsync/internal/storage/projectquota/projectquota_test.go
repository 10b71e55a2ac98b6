package projectquota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func mkdir(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestADirectoryGetsTheFirstProjectThatNobodyHas(t *testing.T) {
	q, d, etc := onDisk(t)
	etc("projects", fmt.Sprintf("# of the database\n%d:/srv/database\nnonsense\n", First))
	etc("projid", fmt.Sprintf("backups : %d\n:\n", First+1))
	d.counted[First+2] = quota{Usage: Usage{Inodes: 1}}
	d.counted[First+3] = quota{limited: true}
	dir := mkdir(t, "a")
	id, err := q.Give(dir)
	if err != nil || id != First+4 || d.dirs[dir] != (attributes{First + 4, true}) {
		t.Fatalf("it got %d, %v, and is %+v", id, err, d.dirs[dir])
	}
	d.counted[id] = quota{Usage: Usage{Bytes: 10 << 20, Inodes: 2}}
	got, err := q.Usage(dir, id)
	if err != nil || got != (Usage{10<<20 + 4096, 3}) {
		t.Errorf("it has %+v, %v", got, err)
	}
	if len(q.taking) != 0 {
		t.Errorf("still being given: %v", q.taking)
	}
}

func TestNoTwoDirectoriesGetTheSameProject(t *testing.T) {
	q, d, _ := onDisk(t)
	var all sync.WaitGroup
	d.meet = &sync.WaitGroup{}
	d.meet.Add(50)
	for i := range 50 {
		dir := mkdir(t, fmt.Sprint(i))
		all.Go(func() {
			if _, err := q.Give(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := map[uint32]string{}
	for dir, a := range d.dirs {
		if seen[a.project] != "" || a.project < First || a.project >= First+50 {
			t.Errorf("%s and %q have project %d", dir, seen[a.project], a.project)
		}
		seen[a.project] = dir
	}
}

func TestADirectoryKeepsTheProjectThatItGotBeforeACrash(t *testing.T) {
	q, d, _ := onDisk(t)
	dir := mkdir(t, "a")
	first, err := q.Give(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := q.Give(dir)
	if err != nil || again != first || d.sets != 1 {
		t.Errorf("%d and then %d, %v, after %d changes", first, again, err, d.sets)
	}
}

func TestADirectoryWithSomethingInItGetsNoProject(t *testing.T) {
	q, d, _ := onDisk(t)
	dir := mkdir(t, "a")
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := q.Give(dir); err == nil || d.sets != 0 {
		t.Errorf("it got %d", id)
	}
}

// TestADirectoryOfSomebodyElsesProjectKeepsThat: it would take what is written from what
// that may have.
func TestADirectoryOfSomebodyElsesProjectKeepsThat(t *testing.T) {
	for name, has := range map[string]attributes{
		"one of a low number":                  {42, true},
		"one that is named":                    {First + 7, true},
		"one that is inherited, of a high one": {First + 8, true},
		"one with a limit":                     {First + 9, true},
		"one that passes on none":              {First + 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			q, d, etc := onDisk(t)
			etc("projid", fmt.Sprintf("x:%d\n", First+7))
			d.counted[First+8] = quota{Usage: Usage{Inodes: 1}} // its parent
			d.counted[First+9] = quota{limited: true}
			dir := mkdir(t, "a")
			d.dirs[dir] = has
			if id, err := q.Give(dir); err == nil || d.sets != 0 {
				t.Errorf("it got %d, %v", id, err)
			}
		})
	}
}

func TestWhereNothingIsCountedNoDirectoryGetsAProject(t *testing.T) {
	q, d, _ := onDisk(t)
	dir := mkdir(t, "a")
	d.off = true
	if id, err := q.Give(dir); !errors.Is(err, ErrNone) || d.sets != 0 {
		t.Errorf("it got %d, %v", id, err)
	}
	d.off, d.deaf = false, true
	if id, err := q.Give(dir); !errors.Is(err, ErrNone) || d.dirs[dir] != (attributes{}) {
		t.Errorf("it got %d, %v, and is %+v", id, err, d.dirs[dir])
	}
}

func TestNoProjectIsGivenWhileItIsNotKnownWhichAreAnAdministrators(t *testing.T) {
	q, d, _ := onDisk(t)
	if err := os.Mkdir(q.files[1], 0o755); err != nil {
		t.Fatal(err)
	}
	if id, err := q.Give(mkdir(t, "a")); err == nil || d.sets != 0 {
		t.Errorf("it got %d", id)
	}
}

func TestADirectoryOfAnotherProjectIsNotMeasured(t *testing.T) {
	q, d, _ := onDisk(t)
	dir := mkdir(t, "a")
	id, err := q.Give(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, has := range []attributes{{id + 1, true}, {id, false}, {}} {
		d.dirs[dir] = has
		if got, err := q.Usage(dir, id); err == nil {
			t.Errorf("as %+v it has %+v", has, got)
		}
	}
	d.dirs[dir], d.deaf = attributes{id, true}, true
	if got, err := q.Usage(dir, id); !errors.Is(err, ErrNone) {
		t.Errorf("not counted any more, it has %+v, %v", got, err)
	}
}

func TestALinkInADirectorysPlaceIsNotFollowed(t *testing.T) {
	q, d, _ := onDisk(t)
	dir := mkdir(t, "a")
	link := filepath.Join(filepath.Dir(dir), "link")
	if err := os.Symlink("a", link); err != nil {
		t.Fatal(err)
	}
	if id, err := q.Give(link); err == nil || d.sets != 0 {
		t.Errorf("it got %d", id)
	}
	if _, err := q.Usage(link, First); err == nil {
		t.Error("it was measured")
	}
}

// TestProjectsThatAreAllTakenKeepNobodyWaiting: a pod may give projects to any number of files.
func TestProjectsThatAreAllTakenKeepNobodyWaiting(t *testing.T) {
	q, d, _ := onDisk(t)
	for i := range uint32(tries + 10) {
		d.counted[First+i] = quota{Usage: Usage{Inodes: 1}}
	}
	if id, err := q.Give(mkdir(t, "a")); err == nil || d.sets != 0 {
		t.Errorf("it got %d", id)
	}
	// The next search goes on where that has ended.
	if id, err := q.Give(mkdir(t, "b")); err != nil || id != First+tries+10 {
		t.Errorf("the next got %d, %v", id, err)
	}
	q.begun(First + most)
	d.counted = map[uint32]quota{}
	if id, err := q.Give(mkdir(t, "c")); err != nil || id != First {
		t.Errorf("after all that are given the next got %d, %v", id, err)
	}
}
