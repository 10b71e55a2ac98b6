package dirtree

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWhatComesGoesAndIsWrittenAnewIsTold(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, "d", name) }
	write := func(name string) error { return os.WriteFile(at(name), []byte("x"), 0o600) }
	if err := errors.Join(os.Mkdir(at(""), 0o700), write("same"), write("gone"), write("anew")); err != nil {
		t.Fatal(err)
	}
	before := Of(t, dir)
	if changed := Written(before, Of(t, dir)); len(changed) != 0 {
		t.Errorf("nothing was written, and told is %v", changed)
	}
	if err := errors.Join(os.Remove(at("gone")), write("new"), write(".anew"), os.Rename(at(".anew"), at("anew"))); err != nil {
		t.Fatal(err)
	}
	want := []string{at(""), at("anew"), at("gone"), at("new")}
	slices.Sort(want)
	if changed := Written(before, Of(t, dir)); !slices.Equal(changed, want) {
		t.Errorf("told is %v, want %v", changed, want)
	}
}
