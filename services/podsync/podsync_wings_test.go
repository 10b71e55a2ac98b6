package podsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/polylet/polylet/internal/testkit/wings"
)

// house are the folders of internal/ from the top down: each imports only what
// stands below it. The picture in README.md is drawn from them.
var house = []wings.Wing{
	{Name: "server"}, {Name: "lifecycle"}, {Name: "admission"}, {Name: "housekeeping"}, {Name: "storage"}, {Name: "report"}, {Name: "runtime"}, {Name: "podstate"},
	{Name: "resources"}, {Name: "desired"}, {Name: "cluster"}, {Name: "host"}, {Name: "checkpoint"}, {Name: "metrics"}, {Name: "reason"}, {Name: "podutil"},
}

const planner = "lifecycle/worker/internal/plan"

// rooms are all packages below internal/ that ship, by path.
func rooms(t *testing.T) []wings.Package {
	t.Helper()
	all, err := wings.Read("internal", "github.com/polylet/polylet/services/podsync/internal", func(file string) bool {
		return !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "internal/sim/")
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// planners says who imports the planner and may not.
func planners(all []wings.Package) []string {
	var wrong []string
	for _, r := range all {
		for _, other := range r.Imports {
			if other == planner && r.Path != "lifecycle/worker" {
				wrong = append(wrong, fmt.Sprintf("%s imports the planner: the worker alone does; what others say of a pod is in podstate", r.Path))
			}
		}
	}
	return wrong
}

func TestAWingImportsOnlyWhatIsDrawnBelowIt(t *testing.T) {
	all := rooms(t)
	for _, wrong := range append(wings.Climbs(house, all), planners(all)...) {
		t.Error(wrong)
	}
}

func TestWhoImportsThePlannerIsFound(t *testing.T) {
	for path, want := range map[string]int{"lifecycle/worker": 0, "lifecycle/execute": 1} {
		if got := planners([]wings.Package{{Path: path, Imports: []string{planner}}}); len(got) != want {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func TestEachPackageSaysWhatItOwnsAndMustNeverDo(t *testing.T) {
	for _, r := range rooms(t) {
		if !strings.HasPrefix(r.Comment, "Package ") || !strings.Contains(r.Comment, "never") {
			t.Errorf("%s: its comment does not say what it must never do:\n%s", r.Path, r.Comment)
		}
	}
}

func TestTheReadmeShowsTheWingsAsTheyAre(t *testing.T) {
	wings.Shown(t, "go test ./services/podsync -run Wings -update", wings.Picture(house, rooms(t)))
}
