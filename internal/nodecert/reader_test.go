package nodecert

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAReaderSeesEachChange(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	r := NewReader(s)
	if _, err := r.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	start := time.Now()
	for i, name := range []string{"first", "second"} {
		if err := s.Write(pair(t, name, start.Add(time.Hour)), start.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := r.Read(); err != nil || got.Leaf.Subject.CommonName != name {
				t.Errorf("%v, %v; want %s", got, err, name)
			}
		}
	}
	target, _ := os.Readlink(s.CurrentPath())
	if err := os.Truncate(target, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(); !errors.Is(err, ErrDamaged) {
		t.Errorf("damaged: %v", err)
	}
}

// Without descriptors nothing can be opened for a moment. That says nothing of the file.
func TestAReaderReadsAgainWhatCouldNotBeReadForAMoment(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	if err := s.Write(pair(t, "good", time.Now().Add(time.Hour)), time.Now()); err != nil {
		t.Fatal(err)
	}
	r := NewReader(s)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := r.Read()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Fatalf("without descriptors: %v", err)
	}
	if got, err := r.Read(); err != nil || got.Leaf.Subject.CommonName != "good" {
		t.Errorf("afterwards: %v, %v", got, err)
	}
}
