package vm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// quotaDisk is how large a filesystem is that counts by projects; XFS takes no smaller one.
const quotaDisk = 400 << 20

// countsProjects mounts a new filesystem at a directory that counts by project quotas: XFS, or ext4.
func countsProjects(t *testing.T, kind, at string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = errors.Join(os.Truncate(image, quotaDisk), os.MkdirAll(at, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	format := []string{"mkfs.xfs", "-q", image}
	if kind == "ext4" {
		format = []string{"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", image}
	}
	if err := runAll([][]string{{"modprobe", "loop"}, format, {"mount", "-o", "loop,prjquota", image, at}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run("umount", "--lazy", at); err != nil {
			t.Error(err)
		}
	})
}

// TestPodsyncsRightsAreEnoughForProjectQuotas has podsync's own test of a filesystem that
// counts run with what its unit lets it do.
func TestPodsyncsRightsAreEnoughForProjectQuotas(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			at := "/srv/counted-" + kind
			countsProjects(t, kind, at)
			command := append([]string{"--wait", "--pipe", "--collect", "--quiet", "--setenv=POLYLET_TEST_PROJECT_QUOTA=" + at}, rights(t, "polylet-podsync.service")...)
			command = append(command, payload+"/bin/projectquota.test", "-test.v")
			out, err := exec.Command("systemd-run", command...).CombinedOutput()
			text := string(out)
			if err != nil || !strings.Contains(text, "--- PASS: TestARealFilesystemCountsADirectoryByItsProject") {
				t.Errorf("%v:\n%s", err, text)
			}
			t.Log(text)
		})
	}
}
