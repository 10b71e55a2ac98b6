package disk

import "testing"

func TestPathsAreApartOnDifferentFilesystemsOnly(t *testing.T) {
	dir := t.TempDir()
	if Apart(dir, "/proc/self") != true || Apart("/proc", dir) != true {
		t.Error("/proc is on no disk")
	}
	if Apart(dir, dir+"/..") || Apart(dir, dir+"/none") {
		t.Error("the same filesystem is apart, or one that is not there")
	}
}
