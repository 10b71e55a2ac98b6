package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/services/nodestatus"
)

func TestHowTheConfigurationStandsIsShownOnceInNotesMetricsAndEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), stateFile)
	var note string
	var shown nodestatus.Configuration
	var events []string
	s := &configurationShower{
		path: path, log: klog.Background(),
		note: func(_, message string) { note = message }, show: func(c nodestatus.Configuration) { shown = c },
		announce: func(_ context.Context, e nodestatus.Event) {
			events = append(events, e.Type+" "+e.Reason+": "+e.Message)
		},
	}
	changes := []configslice.Change{{Path: "maxPods", Old: "1", New: "2"}}
	for i, step := range []struct {
		state       liveconf.State
		note, event string
		wrong       bool
	}{
		{liveconf.State{Phase: liveconf.Good, Generation: 1}, "", "", false},
		{liveconf.State{Phase: liveconf.Trying, Generation: 2, Changes: changes}, "generation 2 is tried: maxPods: 1 → 2", "", false},
		{liveconf.State{Phase: liveconf.Good, Generation: 2}, "", "Normal ConfigurationApplied: The node runs its new configuration well: maxPods: 1 → 2", false},
		{liveconf.State{Phase: liveconf.Refused, Generation: 2, Error: "no YAML"}, "not taken", "Warning ConfigurationRefused: what the files say is not taken, generation 2 goes on: no YAML", true},
		{liveconf.State{Phase: liveconf.WentBack, Generation: 4, Error: "maxPods: 2 → 3: podsync ended", File: "/x/bad-1.json"}, "/x/bad-1.json", "Warning ConfigurationWentBack: went back", true},
		{liveconf.State{Phase: liveconf.Good, Generation: 4}, "", "", false},
	} {
		step.state.Since = time.Unix(int64(i), 0)
		raw, err := json.Marshal(step.state)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		events = nil
		s.look(t.Context())
		s.look(t.Context())
		if !strings.Contains(note, step.note) || step.note == "" && note != "" {
			t.Errorf("step %d: noted %q, want %q", i, note, step.note)
		}
		if got := strings.Join(events, "|"); !strings.HasPrefix(got, step.event) || (step.event == "") != (got == "") || len(events) > 1 {
			t.Errorf("step %d: events %q, want %q", i, got, step.event)
		}
		if shown.Wrong != step.wrong || shown.Generation != step.state.Generation {
			t.Errorf("step %d: shown %+v", i, shown)
		}
	}
}
