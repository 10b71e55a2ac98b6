package liveconf

import (
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/service"
)

// changed are the services that took something while they ran, since it was last asked.
func (f *fakeNode) changed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.changes, " ")
	f.changes = nil
	return out
}

func TestWhatServicesTakeWhileTheyRunRestartsNobody(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.write("maxPods: 100\ncontainerLogMaxFiles: 9\n")
		if l, state, restarts := f.after(2 * time.Minute); *l.Config.ContainerLogMaxFiles != 9 || state.Phase != Good || restarts != "" || f.changed() != "podsync" {
			t.Errorf("%+v, started again %q", state, restarts)
		}
		f.write("maxPods: 100\ncontainerLogMaxFiles: 9\nlogging: {verbosity: 3}\n")
		if _, state, restarts := f.after(2 * time.Minute); state.Phase != Good || restarts != "" || f.changed() != strings.Join(service.ServersFirst(), " ") {
			t.Errorf("of all: %+v, started again %q", state, restarts)
		}
		f.write("maxPods: 101\ncontainerLogMaxFiles: 8\nlogging: {verbosity: 2}\n")
		if _, state, restarts := f.after(2 * time.Minute); state.Phase != Good || restarts != "podsync nodestatus" || f.changed() != "stats probes gateway" {
			t.Errorf("with what podsync and nodestatus start again for: %+v, started again %q", state, restarts)
		}
		f.allRun(t)
	})
}

func TestWhatWasTakenWhileServicesRanGoesBackLikeAnythingElse(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.ill = func(service string, l *kubeletconfig.Loaded) string {
			if service == "podsync" && *l.Config.ContainerLogMaxFiles == 9 {
				return "syncloop: stuck"
			}
			return ""
		}
		f.write("maxPods: 100\ncontainerLogMaxFiles: 9\n")
		l, state, restarts := f.after(3 * time.Minute)
		if *l.Config.ContainerLogMaxFiles != 5 || state.Phase != WentBack || restarts != "" || f.changed() != "podsync podsync" || !strings.Contains(state.Error, "containerLogMaxFiles: 5 → 9") {
			t.Errorf("%+v, started again %q", state, restarts)
		}
		f.allRun(t)
	})
}

// TestWhatWasTakenBeforeItsTurnGoesBackToo: a service takes what it is handed when anybody
// asks it with what it runs.
func TestWhatWasTakenBeforeItsTurnGoesBackToo(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.crashes = func(service string, l *kubeletconfig.Loaded) bool {
			if service == "podsync" && l.Config.MaxPods == 102 && f.runs["stats"] != "" {
				f.runs["stats"] = configslice.Checksum(l.Fields(), "stats") // somebody asks it
			}
			return service == "podsync" && l.Config.MaxPods == 102
		}
		f.write("maxPods: 102\nlogging: {verbosity: 3}\n")
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack {
			t.Errorf("%+v", state)
		}
		f.allRun(t)
	})
}

// TestAServiceThatTakesNothingWhileItRunsStartsAgain: it is of an earlier release, or has
// just begun.
func TestAServiceThatTakesNothingWhileItRunsStartsAgain(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.deaf = true
		f.write("maxPods: 100\ncontainerLogMaxFiles: 9\n")
		if l, state, restarts := f.after(2 * time.Minute); *l.Config.ContainerLogMaxFiles != 9 || state.Phase != Good || restarts != "podsync" {
			t.Errorf("%+v, started again %q", state, restarts)
		}
		f.allRun(t)
	})
}
