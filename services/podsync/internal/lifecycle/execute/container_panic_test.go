package execute

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/contain"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func TestAPostStartHookThatPanicsIsOver(t *testing.T) {
	h := &host{hook: func(context.Context) error { panic("one panic") }}
	task := h.task(startC)
	task.Pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	err := func() (err error) {
		defer contain.Panic(t.Context(), "it", &err) // as the worker does
		_, err = newExecutor(h, Config{}).Do(t.Context(), t.Context(), task)
		return err
	}()
	if err == nil || !strings.Contains(err.Error(), "it panicked: one panic") {
		t.Errorf("the error is %v", err)
	}
	if told := h.hooks["made"]; !slices.Equal(told, []podstate.Hook{podstate.HookRunning, podstate.HookFailed}) {
		t.Errorf("told %v", told)
	}
}
