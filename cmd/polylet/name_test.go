package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMain is polylet itself when the test's program is called kubelet, or is started as
// polylet run and its children are.
func TestMain(m *testing.M) {
	as := append(os.Args, "")[1]
	if filepath.Base(os.Args[0]) == kubeletName || slices.Contains([]string{"run", launchCommand, "gateway", "handout", "--apart"}, as) {
		main()
	}
	os.Exit(m.Run())
}

// TestPolyletDoesOneCallOfPodsyncsWhenItIsBegunForThat: also under another name.
func TestPolyletDoesOneCallOfPodsyncsWhenItIsBegunForThat(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "--apart", "fullness", t.TempDir())
	out, err := cmd.Output()
	if err != nil || !bytes.Contains(out, []byte(`{"answer":"[{\"stat\":{\"Type\":`)) {
		t.Errorf("%s, %v", out, err)
	}
}

func TestTheNameKubeletIsPolyletRun(t *testing.T) {
	for _, tc := range []struct{ argv, want string }{
		{"/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml -v 2", "run --config=/var/lib/kubelet/config.yaml -v 2"},
		{"kubelet", "run"},
		{"kubelet --version", "run --version"},
		// What it starts itself, and what people ask.
		{"/usr/bin/kubelet launch-child {} -- podsync", "launch-child {} -- podsync"},
		{"kubelet status", "status"},
		{"polylet --help", "--help"},
		{"polylet", ""},
		{"/opt/kubelet-1/polylet --version", "--version"},
	} {
		if got := arguments(strings.Fields(tc.argv)); !slices.Equal(got, strings.Fields(tc.want)) {
			t.Errorf("%s is %q, want %q", tc.argv, got, tc.want)
		}
	}
}

// kubeadmReads is how kubeadm finds the version in what `kubelet --version` prints.
var kubeadmReads = regexp.MustCompile(`^\s*Kubernetes v(1\.36\.(0|[1-9]\d*)([-\w.+]*)?)\s*$`)

func TestKubeadmReadsTheKubeletsVersion(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kubelet")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	for _, env := range []string{"PATH=/nowhere", "HOME="} { // kubeadm hands on what it has
		cmd := exec.CommandContext(t.Context(), program, "--version")
		cmd.Env = []string{env}
		out, err := cmd.Output()
		if err != nil || !kubeadmReads.Match(out) {
			t.Errorf("%s: kubelet --version: %v %q", env, err, out)
		}
	}
}

func TestAKubeletThatIsToldNothingIsNotOpen(t *testing.T) {
	root := newRootCommand()
	root.SetArgs(arguments([]string{"kubelet"}))
	root.SetOut(new(bytes.Buffer))
	if err := root.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("kubelet without flags: %v", err)
	}
}
