package programs

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// A build that is killed leaves 70 MB.
func TestWhatBuildsThatWereKilledHaveLeftIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "polylet")
	const dead = 1<<31 - 1 // no process has a number as large
	for name, stays := range map[string]bool{
		path + "." + strconv.Itoa(dead): false, path + "." + strconv.Itoa(os.Getpid()): true, path + ".1old": true, path: true,
	} {
		if err := os.WriteFile(name, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		dropUnfinished(path)
		if _, err := os.Stat(name); (err == nil) != stays {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}
