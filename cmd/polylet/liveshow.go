package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/configslice"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/liveconf"
	"github.com/polylet/polylet/internal/liveconf/assigned"
	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/nodestatus"
)

// configurationShower shows in nodestatus how the configuration stands, as polylet run
// writes it into a file: beside what the process depends on, in metrics, as events.
type configurationShower struct {
	path string
	// assigned is the file that says what has become of the cluster's configuration, tell
	// is told of it.
	assigned string
	tell     func(nodestatus.Assigned)
	note     func(name, message string)
	show     func(nodestatus.Configuration)
	announce func(context.Context, nodestatus.Event)
	log      klog.Logger
	last     *liveconf.State
	noted    bool
}

// showsConfiguration is nodestatus's part that does it; nil where nobody hands
// configurations over.
func showsConfiguration(loaded *kubeletconfig.Loaded, node *nodestatus.Service, note func(name, message string), log klog.Logger) []func(context.Context) error {
	if !loaded.Handed() {
		return nil
	}
	dir := filepath.Join(loaded.Flags.SocketDir, service.Nodestatus)
	s := &configurationShower{
		path: filepath.Join(dir, stateFile), assigned: filepath.Join(dir, assignedFile), tell: node.ShowAssigned,
		note: note, show: node.ShowConfiguration, announce: node.Announce, log: log,
	}
	return []func(context.Context) error{s.run}
}

func (s *configurationShower) run(ctx context.Context) error {
	followFiles(ctx, s.log, func(dirs *directories) {
		dirs.want(filepath.Dir(s.path), filepath.Base(s.path), filepath.Base(s.assigned))
	}, func() {
		s.look(ctx)
		showAssigned(s.assigned, s.tell, s.log)
	})
	return nil
}

// look shows the state if it is another than before.
func (s *configurationShower) look(ctx context.Context) {
	var state liveconf.State
	raw, err := os.ReadFile(s.path)
	if err == nil {
		err = json.Unmarshal(raw, &state)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.log.Error(err, "How the configuration stands cannot be read", "path", s.path)
		}
		return
	}
	if s.last != nil && s.last.Phase == state.Phase && s.last.Since.Equal(state.Since) {
		return
	}
	s.show(nodestatus.Configuration{Generation: state.Generation, Wrong: state.Error != ""})
	if text := state.Text(); text != "" || s.noted {
		s.note("configuration", text)
		s.noted = true
	}
	if e, worth := eventOf(s.last, state); worth {
		s.announce(ctx, e)
	}
	s.last = &state
}

// showAssigned tells what has become of the cluster's configuration, if its owner has said
// so.
func showAssigned(path string, tell func(nodestatus.Assigned), log klog.Logger) {
	var view assigned.View
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(raw, &view)
	}
	if err != nil {
		log.Error(err, "What has become of the cluster's configuration cannot be read", "path", path)
		return
	}
	tell(nodestatus.Assigned{Assigned: view.Assigned, Active: view.Active, LastKnownGood: view.LastKnownGood, Error: view.Error, Waits: view.Waits})
}

// eventOf is the Node's event about a state that came after another; nil: it is the
// first that this process sees.
func eventOf(before *liveconf.State, now liveconf.State) (nodestatus.Event, bool) {
	warn := func(reason string) (nodestatus.Event, bool) {
		text := now.Text()
		return nodestatus.Event{Type: v1.EventTypeWarning, Reason: reason, Message: strings.ToValidUTF8(text[:min(len(text), longestMessage)], "")}, true
	}
	switch now.Phase {
	case liveconf.WentBack:
		return warn("ConfigurationWentBack")
	case liveconf.Refused:
		return warn("ConfigurationRefused")
	case liveconf.Bad:
		return warn("ConfigurationBad")
	case liveconf.Good:
		if before != nil && before.Phase == liveconf.Trying {
			text := "The node runs its new configuration well: " + strings.Join(configslice.Texts(before.Changes), ", ")
			return nodestatus.Event{Type: v1.EventTypeNormal, Reason: "ConfigurationApplied", Message: strings.ToValidUTF8(text[:min(len(text), longestMessage)], "")}, true
		}
	case liveconf.Trying:
	}
	return nodestatus.Event{}, false
}
