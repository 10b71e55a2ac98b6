package worker

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker/internal/plan"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// TestALineOfTheLogIsShortWhateverFailed: a pod's spec may say a megabyte that an
// error repeats, at each attempt with other words around it.
func TestALineOfTheLogIsShortWhateverFailed(t *testing.T) {
	var logged []string
	w := &worker{log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})}
	for _, message := range []string{"first " + strings.Repeat("é", 1<<20), "no such directory"} {
		w.failed(podstate.Action{Key: podstate.Key{Kind: podstate.SetupVolumes}}, plan.Noted{News: true, Failure: plan.Failure{Reason: "FailedMount", Message: message}})
	}
	if len(logged) != 2 || len(logged[0]) > 2*mostLogged || !strings.Contains(logged[0], "first é") || !strings.Contains(logged[1], "no such directory") {
		t.Errorf("%d lines, the first of %d bytes: %.200q", len(logged), len(logged[0]), logged)
	}
}
