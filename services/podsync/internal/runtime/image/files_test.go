package image

import (
	"slices"
	"testing"
)

func TestCredentialsAreLookedForInTheRootBeforeTheHome(t *testing.T) {
	t.Setenv("HOME", "/home/of")
	want := []string{
		"/var/lib/kubelet/config.json", "config.json", "/home/of/.docker/config.json", "/.docker/config.json",
		"/var/lib/kubelet/.dockercfg", ".dockercfg", "/home/of/.dockercfg", "/.dockercfg",
	}
	if got := CredentialFiles("/var/lib/kubelet"); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	t.Setenv("HOME", "")
	want = []string{"/root/config.json", "config.json", "/.docker/config.json", "/root/.dockercfg", ".dockercfg", "/.dockercfg"}
	if got := CredentialFiles("/root"); !slices.Equal(got, want) {
		t.Errorf("without a home %q, want %q", got, want)
	}
}
