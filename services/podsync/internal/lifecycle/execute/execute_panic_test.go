package execute

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/reason"
)

// panicked does a start of a container with a postStart hook, which is to panic.
func panicked(t *testing.T, h *host) {
	t.Helper()
	task := h.task(startC)
	task.Pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	_, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), task)
	if err == nil || !strings.Contains(err.Error(), "start container of pod u panicked: one panic") || reason.Of(err) != podstate.ReasonPanicked {
		t.Errorf("the error is %v, for %q", err, reason.Of(err))
	}
	if told := h.hooks["made"]; !slices.Equal(told, []podstate.Hook{podstate.HookRunning, podstate.HookFailed}) {
		t.Errorf("of the hook is told %v", told)
	}
	if !slices.Contains(h.log, "refresh") {
		t.Errorf("the runtime was not looked at: %q", h.log)
	}
}

func TestAPostStartHookThatPanicsIsOver(t *testing.T) {
	panicked(t, &host{hook: func(context.Context) error { panic("one panic") }})
}

func TestWhatAnActionThatPanickedDidIsObserved(t *testing.T) {
	h := &host{}
	h.called = func(name string) {
		if name == "saw" && slices.Contains(h.log, "start made") {
			panic("one panic")
		}
	}
	panicked(t, h)
}
