package volume

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func TestAFileThatLiesDeepInAVolumeIsTheFsGroupsToo(t *testing.T) {
	f := onKernel(t)
	f.objects.setMap("cm", map[string]string{"k": "v"})
	deep := strings.Repeat("d/", 300) + "file"
	v := configMapVolume("c", "cm")
	v.ConfigMap.Items = []v1.KeyToPath{{Key: "k", Path: deep}}
	pod := podWith(v)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4321)}
	if err := f.set.Setup(t.Context(), pod); err != nil {
		t.Fatalf("%.300v", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(f.root, "pods/uid-1/volumes", pluginConfigMap, "c", deep), &st); err != nil || st.Gid != 4321 {
		t.Errorf("it has group %d: %v", st.Gid, err)
	}
}
