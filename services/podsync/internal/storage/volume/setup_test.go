package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// CVE-2024-10220, CVE-2025-1767: gitRepo ran hooks and read the node's repositories.
func TestWhatThisNodeDoesNotMakeIsRefusedWithItsName(t *testing.T) {
	for want, source := range map[string]v1.VolumeSource{
		"gitRepo (removed from Kubernetes": {GitRepo: &v1.GitRepoVolumeSource{Repository: "/etc", Directory: "."}},
		"flexVolume (deprecated":           {FlexVolume: &v1.FlexVolumeSource{}},
	} {
		f := newFixture(t)
		err := f.set.Setup(t.Context(), podWith(v1.Volume{Name: "v", VolumeSource: source}))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "not supported") {
			t.Errorf("%s: %v", want, err)
		}
		if _, err := os.Stat(filepath.Join(f.root, "pods")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something was made: %v", want, err)
		}
	}
}
