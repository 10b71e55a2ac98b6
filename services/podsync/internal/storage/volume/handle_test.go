package volume

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAHandleOfALinkIsTheLinks: whoever removes or takes over what has a name never goes where a
// link leads, that somebody has put in its place meanwhile.
func TestAHandleOfALinkIsTheLinks(t *testing.T) {
	at, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(at, "link")); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, open := range map[string]openat2{
		"openat2":          unix.Openat2,
		"before Linux 5.6": func(int, string, *unix.OpenHow) (int, error) { return -1, unix.ENOSYS },
	} {
		fd, err := open.handle(dir, "link")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
			t.Errorf("%s: the handle is of a file of the kind %o, %v", name, st.Mode&unix.S_IFMT, err)
		}
		_ = unix.Close(fd)
	}
}
