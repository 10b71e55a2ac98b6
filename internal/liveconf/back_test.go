package liveconf

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAVerdictOfAnotherBuildDoesNotCount(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.crashes = crashesWith("podsync", 102)
		f.write("maxPods: 102\n")
		f.after(time.Minute)
		f.end()
		f.crashes = crashesWith("podsync", 0) // the next release can do it
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 100 || state.Phase != WentBack {
			t.Errorf("the same build: %d pods, %+v", l.Config.MaxPods, state)
		}
		f.end()
		f.build = "the next"
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 102 || state.Phase != Good {
			t.Errorf("the next one: %d pods, %+v", l.Config.MaxPods, state)
		}
	})
}

// TestAWayBackOverWhatARunningNodeCannotChangeIsAStart: the start took another directory
// of logs, where the containers of that time write.
func TestAWayBackOverWhatARunningNodeCannotChangeIsAStart(t *testing.T) {
	onNode(t, func(t *testing.T, f *fakeNode) {
		f.end()
		f.crashes = crashesWith("podsync", 102)
		f.write("maxPods: 102\npodLogsDir: /elsewhere\n")
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		l, state, restarts := f.after(time.Minute)
		if l.Config.PodLogsDir != "/elsewhere" || state.Phase != WentBack || restarts != "" {
			t.Errorf("on the running node: %s, %+v, started again %q", l.Config.PodLogsDir, state, restarts)
		}
		<-f.done
		if !errors.Is(f.ended, ErrStartAgain) || !f.said("cannot be taken while the node runs", "podLogsDir") {
			t.Errorf("it ends with %v", f.ended)
		}
		f.end()
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
		if l, state, _ := f.after(2 * time.Minute); l.Config.MaxPods != 100 || l.Config.PodLogsDir == "/elsewhere" || state.Phase != WentBack || !strings.Contains(state.Error, "podsync ended 3 times") {
			t.Errorf("after it: %d pods, %s, %+v", l.Config.MaxPods, l.Config.PodLogsDir, state)
		}
	})
}
