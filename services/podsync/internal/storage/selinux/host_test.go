package selinux

import (
	"os"
	"path/filepath"
	"testing"
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
	write("etc/selinux/config", "SELINUXTYPE=../targeted\n")
	if got := h.ofContainers(); got != "" {
		t.Errorf("a path: %q", got)
	}
}

func TestAMachineWithoutSELinuxHasNoLabels(t *testing.T) {
	h := &Host{Root: t.TempDir()}
	if h.Enabled() || h.File() != "" {
		t.Errorf("%v, %q", h.Enabled(), h.File())
	}
}
