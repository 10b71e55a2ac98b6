package ownership

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/polylet/polylet/services/podsync/internal/host/apart"
)

// TestMain is also the program of the processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == apart.Flag {
		os.Exit(apart.Main(os.Args[1:], Calls(), os.Stdout))
	}
	os.Exit(m.Run())
}

func TestATreeIsGivenByAProcessOfItsOwn(t *testing.T) {
	root, outside := tree(t)
	by := apart.New(apart.Config{Most: 1, MostOfOne: 1})
	if err := (Change{Group: give(group)}).ApplyApart(t.Context(), by, "s", root); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]uint32{"": 0o2770, "d/e": 0o2770, "d/file": 0o660} {
		if st := stat(t, filepath.Join(root, path)); int64(st.Gid) != group || st.Mode&0o7777 != mode {
			t.Errorf("%q: group %d, mode %o", path, st.Gid, st.Mode)
		}
	}
	if st := stat(t, filepath.Join(outside, "secret")); st.Gid != 0 {
		t.Error("a link was followed")
	}
	if err := os.Lchown(filepath.Join(root, "d", "file"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := (Change{Group: give(group), OnMismatch: true}).ApplyApart(t.Context(), by, "s", root); err != nil || stat(t, filepath.Join(root, "d", "file")).Gid != 0 {
		t.Errorf("looked at though the root is given away: %v", err)
	}
}

func TestAProcessThatGivesATreeSaysWhatItCannotGive(t *testing.T) {
	root := inMemory(t)
	deepen(t, root, mostDepth+10)
	by := apart.New(apart.Config{Most: 1, MostOfOne: 1})
	if err := (Change{Group: give(group)}).ApplyApart(t.Context(), by, "s", root); err == nil || !strings.Contains(err.Error(), "directories deep") {
		t.Errorf("the error is %.300v", err)
	}
	var left error
	if err := (Change{Group: give(group), Skip: func(err error) { left = err }}).ApplyApart(t.Context(), by, "s", root); err != nil || left == nil || !strings.Contains(left.Error(), "of 1 files: give ") {
		t.Errorf("%v, left is %.300v", err, left)
	}
}

// telling stands in for a process that says how far it is, and does not end.
type telling struct{}

func (telling) Follow(ctx context.Context, _ string, told func(string), _ string, _ ...string) (string, error) {
	told("7")
	<-ctx.Done()
	return "", context.Cause(ctx)
}

func TestHowFarAProcessIsThatGivesATreeIsKnown(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the pod is gone")
	c := Change{Group: give(group), Given: &atomic.Int64{}}
	cancel(gone)
	if err := c.ApplyApart(ctx, telling{}, "s", "/v"); !errors.Is(err, gone) || c.Given.Load() != 7 {
		t.Errorf("%v, %d", err, c.Given.Load())
	}
}
