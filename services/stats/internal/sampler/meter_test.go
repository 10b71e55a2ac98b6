package sampler

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
)

// The kernel may be told to count no memory, as small boards tell it: what else a node is
// short of is measured all the same.
func TestACgroupWhoseMemoryNobodyCountsIsThere(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"with/cpu.stat": "usage_usec 1\n", "with/memory.stat": "inactive_file 100\n", "with/memory.current": "900\n", "with/memory.max": "5000\n", "without/cpu.stat": "usage_usec 1\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &Meter{deps: Deps{Cgroups: cgroup.New(true, map[string]string{"": dir})}}
	if got, err := m.Memory("/with"); err != nil || got.WorkingSet != 800 || got.Usage != 900 || got.Limit != 5000 || got.Time.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := m.Memory("/without"); err != nil || got.WorkingSet != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := m.Memory("/none"); err == nil {
		t.Errorf("of one that is not there: %+v", got)
	}
}
