package configslice

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/testkit/golden"
)

// TestThePageOfTheConfigurationHasEachField: -update writes the table anew.
func TestThePageOfTheConfigurationHasEachField(t *testing.T) {
	const page = "../../docs/configuration.md"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "\n| field | default |"
	text, _, _ := strings.Cut(string(raw), begin)
	var b strings.Builder
	b.WriteString(begin + " used by | changes | from the cluster |\n|---|---|---|---|---|\n")
	effects := Effects()
	defaults := fieldsOf(t, "")
	for _, path := range slices.Sorted(maps.Keys(effects)) {
		owners, _ := Owners(path)
		who, how := strings.Join(owners, ", "), "live"
		switch {
		case effects[path].Who == "loading":
			who = "whoever reads the files"
		case len(owners) == 0:
			who = "nobody: " + effects[path].Who
		}
		if slices.Contains(InPlace(), path) {
			how = "in place"
		}
		if reason := Fixed()[path]; reason != "" {
			how = "not while the node runs: " + reason
		}
		value := "`" + strings.ReplaceAll(defaults[path], "|", `\|`) + "`"
		if defaults[path] == "null" {
			value = "none"
		}
		cluster := "no"
		if slices.Contains(OfCluster(), path) {
			cluster = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", path, value, who, how, cluster)
	}
	golden.Equal(t, page, []byte(strings.TrimRight(text, "\n")+"\n"+b.String()))
}
