package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// makefileTags are the build tags that the Makefile's TAGS and the harness's
// build agree on.
func makefileTags(t *testing.T) string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tags := regexp.MustCompile(`(?m)^TAGS\s*:=\s*(\S+)$`).FindSubmatch(makefile)
	if tags == nil {
		t.Fatal("the Makefile has no TAGS")
	}
	harness, err := os.ReadFile("../../test/harness/programs/polylet.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := `buildTags = "` + string(tags[1]) + `"`; !strings.Contains(string(harness), want) {
		t.Errorf("test/harness/programs builds with other tags than the Makefile: it lacks %s", want)
	}
	return string(tags[1])
}

// Five processes load what is linked, and run its initialisation: each of these
// costs megabytes.
func TestWhatWouldMakeEveryProcessLargerIsNotLinked(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", makefileTags(t), ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	for name, why := range map[string]string{
		"html/template":                     "calls methods by name, so the linker keeps all methods of all types",
		"golang.org/x/net/trace":            "uses html/template: build with the tag grpcnotrace",
		"k8s.io/kubernetes":                 "is a peer of the tests",
		"k8s.io/klog/v2/ktesting":           "is for tests",
		"github.com/distribution/reference": "compiles its grammar at import; services/podsync/internal/runtime/image/reference reads the same",
		"github.com/onsi/gomega":            "is for tests",
	} {
		if slices.ContainsFunc(packages, func(p string) bool { return p == name || strings.HasPrefix(p, name+"/") }) {
			t.Errorf("%s is linked: it %s", name, why)
		}
	}
}
