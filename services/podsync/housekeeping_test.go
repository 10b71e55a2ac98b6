package podsync

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestThePodsWhoseLogsAreOnTheDiskAreFoundByTheirDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"default_web_1234", "kube-system_proxy_abcd", "two_parts", "no_uid_", "lost+found"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "default_file_5678"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("default_web_1234", filepath.Join(dir, "default_link_9999")); err != nil {
		t.Fatal(err)
	}
	s := &Service{cfg: Config{PodLogsDir: dir}}
	if got, err := s.logsOnDisk(); err != nil || !slices.Equal(got, []types.UID{"1234", "abcd"}) {
		t.Errorf("found %v, %v", got, err)
	}
	s.cfg.PodLogsDir = filepath.Join(dir, "absent")
	if got, err := s.logsOnDisk(); err != nil || got != nil {
		t.Errorf("found %v, %v where no directory is", got, err)
	}
}
