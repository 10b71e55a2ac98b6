// Package test_test holds what this repository promises of itself: where its tests are,
// how long its files, which package imports which, what its pages name. It must never
// need anything but its files.
package test_test

import (
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/testkit/wings"
)

// house are the folders here from the top down: each imports only what stands below
// it. The picture in README.md is drawn from them.
var house = []wings.Wing{
	{Name: "tests", Folders: []string{"contract", "deploy", "kubeadm", "node", "tools", "vm"}},
	{Name: "programs", Folders: []string{"bench", "cmd", "images"}},
	{Name: "whole nodes", Folders: []string{"harness/kubeadm", "harness/stack"}},
	{Name: "parts", Folders: []string{
		"harness/browser", "harness/cluster", "harness/containerd", "harness/fakeruntime", "harness/node", "harness/services",
		"harness/storage", "harness/units", "harness/vm",
	}},
	{Name: "what is run", Folders: []string{"harness/images", "harness/programs", "harness/suite"}},
	{Name: "where", Folders: []string{"harness/instance", "harness/realtest", "harness/space"}},
	{Name: "ground", Folders: []string{"harness/hogs", "harness/install", "harness/process", "harness/registry", "harness/said", "harness/workspace"}},
}

func packages(t *testing.T, prefix string) []wings.Package {
	t.Helper()
	all, err := wings.Read(".", prefix, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAWingImportsOnlyWhatIsDrawnBelowIt(t *testing.T) {
	for _, wrong := range wings.Climbs(house, packages(t, "github.com/polylet/polylet/test")) {
		t.Error(wrong)
	}
}

// What ships is built and run as it ships, in processes of its own.
func TestNothingHereLinksAService(t *testing.T) {
	for _, p := range packages(t, "github.com/polylet/polylet") {
		for _, other := range p.Imports {
			if strings.HasPrefix(other, "services/") || strings.HasPrefix(other, "cmd/") {
				t.Errorf("%s imports %s: run it", p.Path, other)
			}
		}
	}
}

func TestTheReadmeShowsTheWingsAsTheyAre(t *testing.T) {
	wings.Shown(t, "go test ./test -run Wings -update", wings.Picture(house, packages(t, "github.com/polylet/polylet/test")))
}
