package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestOneDirectoryOfConfigurationsHasOneOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "polylet", "configuration")
	release, err := ownKept(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ownKept(dir); err == nil || !strings.Contains(err.Error(), "another polylet owns the configuration in "+dir) || !strings.Contains(err.Error(), "--live-config=false") {
		t.Errorf("a second owner: %v", err)
	}
	release()
	again, err := ownKept(dir)
	if err != nil {
		t.Fatalf("after the first one's end: %v", err)
	}
	again()
}
