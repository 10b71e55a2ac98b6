package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recording notes failures instead of failing.
type recording struct {
	testing.TB
	failed string
}

func (r *recording) Helper() {}

func (r *recording) Errorf(format string, _ ...any) { r.failed = format }

func TestADifferenceFailsAndUpdateMendsIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "x.golden")
	defer func(old bool) { *update = old }(*update)
	*update = true
	Equal(t, file, []byte("one\n"))
	*update = false
	Equal(t, file, []byte("one\n"))
	r := &recording{TB: t}
	Equal(r, file, []byte("two\n"))
	if !strings.Contains(r.failed, "-update") {
		t.Errorf("the difference was reported as %q", r.failed)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "one\n" {
		t.Errorf("the file holds %q, %v", data, err)
	}
}
