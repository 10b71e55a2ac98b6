package selinux

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestThePolicySaysHowFilesOfContainersAreLabelled(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := &Host{Root: root}
	if got := h.ofContainers(); got != "" {
		t.Errorf("without files: %q", got)
	}
	write("etc/selinux/config", "# SELINUXTYPE= can take one of\nSELINUX=enforcing\nSELINUXTYPE = targeted\n")
	write("etc/selinux/targeted/contexts/lxc_contexts", "process = \"system_u:system_r:container_t:s0\"\nro_file = \"x\"\nfile = \"system_u:object_r:container_file_t:s0\"\n")
	if got := h.ofContainers(); got != "system_u:object_r:container_file_t:s0" {
		t.Errorf("%q", got)
	}
	write("etc/selinux/config", "SELINUXTYPE=\"targeted\"\n")
	if got := h.ofContainers(); got != "system_u:object_r:container_file_t:s0" {
		t.Errorf("quoted: %q", got)
	}
	write("etc/selinux/config", "SELINUXTYPE=../targeted\n")
	if got := h.ofContainers(); got != "" {
		t.Errorf("a path: %q", got)
	}
	write("usr/share/containers/selinux/contexts", "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:other_file_t:s0\"\n")
	if got := h.ofContainers(); got != "system_u:object_r:other_file_t:s0" {
		t.Errorf("of containers' own policy: %q", got)
	}
}

func TestPluginsInContainersMayUseTheirDirectories(t *testing.T) {
	var given []string
	h := &Host{enabled: true, setLabel: func(path, label string) error {
		given = append(given, path+" "+label)
		return map[string]error{"/none": unix.ENOENT, "/denied": unix.EACCES}[path]
	}}
	h.once.Do(func() {})
	if err := h.OpenToPlugins("/a", "/none", "/b"); err != nil {
		t.Error(err)
	}
	if want := []string{"/a " + ofPlugins, "/none " + ofPlugins, "/b " + ofPlugins}; !slices.Equal(given, want) {
		t.Errorf("labels given: %q", given)
	}
	if err := h.OpenToPlugins("/denied", "/c"); !errors.Is(err, unix.EACCES) || len(given) != 5 {
		t.Errorf("what is denied: %v, %q", err, given)
	}
	h.enabled = false
	if err := h.OpenToPlugins("/a"); err != nil || len(given) != 5 {
		t.Errorf("without SELinux: %v, %q", err, given)
	}
}

func TestAMachineWithoutSELinuxHasNoLabels(t *testing.T) {
	h := &Host{Root: t.TempDir()}
	if h.Enabled() || h.File() != "" {
		t.Errorf("%v, %q", h.Enabled(), h.File())
	}
}
