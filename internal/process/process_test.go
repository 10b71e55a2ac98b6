package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
)

// limits is a kernel's limit of open files; privileged processes may raise it.
type limits struct {
	now        unix.Rlimit
	privileged bool
}

func (l *limits) files(set, was *unix.Rlimit) error {
	if was != nil {
		*was = l.now
	}
	if set == nil {
		return nil
	}
	if set.Max > l.now.Max && !l.privileged {
		return unix.EPERM
	}
	l.now = *set
	return nil
}

func self(t *testing.T, score string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "oom_score_adj"), []byte(score+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func collected() (logr.Logger, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return funcr.New(func(_, args string) { fmt.Fprintln(out, args) }, funcr.Options{Verbosity: 2}), out
}

func TestAProcessTakesItsScoreAndItsFiles(t *testing.T) {
	dir, l := self(t, "0"), &limits{unix.Rlimit{Cur: 1024, Max: 4096}, true}
	log, said := collected()
	apply(Config{OOMScoreAdj: -999, MaxOpenFiles: 1000000}, Deps{Self: dir, Files: l.files}, log)
	if score, err := os.ReadFile(filepath.Join(dir, "oom_score_adj")); err != nil || string(score) != "-999" {
		t.Errorf("score %q, %v", score, err)
	}
	if l.now != (unix.Rlimit{Cur: 1000000, Max: 1000000}) {
		t.Errorf("limit %+v", l.now)
	}
	if said.Len() > 0 {
		t.Errorf("said %s", said)
	}
}

func TestWithoutTheRightAProcessTakesWhatItCanAndSaysSo(t *testing.T) {
	l := &limits{unix.Rlimit{Cur: 1024, Max: 4096}, false}
	log, said := collected()
	apply(Config{OOMScoreAdj: -999, MaxOpenFiles: 1000000}, Deps{Self: filepath.Join(t.TempDir(), "none"), Files: l.files}, log)
	if l.now != (unix.Rlimit{Cur: 4096, Max: 4096}) {
		t.Errorf("limit %+v; want what the hard one allows", l.now)
	}
	for _, want := range []string{"OOMScoreAdjust=", "LimitNOFILE=", "it is 4096"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not said in:\n%s", want, said)
		}
	}
}

func TestNothingIsWrittenThatIsSoAlready(t *testing.T) {
	dir := self(t, "-999")
	if err := os.Chmod(filepath.Join(dir, "oom_score_adj"), 0o444); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(filepath.Join(dir, "oom_score_adj"))
	if err != nil {
		t.Fatal(err)
	}
	log, said := collected()
	l := &limits{unix.Rlimit{Cur: 10, Max: 10}, false}
	apply(Config{OOMScoreAdj: -999, MaxOpenFiles: 10}, Deps{Self: dir, Files: l.files}, log)
	after, err := os.Stat(filepath.Join(dir, "oom_score_adj"))
	if err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) || said.Len() > 0 {
		t.Errorf("written to, or said %s, %v", said, err)
	}
}
