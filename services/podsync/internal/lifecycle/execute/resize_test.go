package execute

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

func TestAResizeIsDoneStepByStep(t *testing.T) {
	kernel := resources.Kernel{Shares: 512, Quota: 50_000, Period: 100_000, Memory: 1000}
	shrink := podstate.Action{Key: podstate.Key{Kind: podstate.ResizeContainer, Object: "id"}, Container: "c", ID: "id", Kernel: kernel, Shrinks: true}
	grow := shrink
	grow.Shrinks = false
	limits := []podstate.MemoryLimit{{Container: "c", ID: "id", Bytes: 1000}, {Container: "d", ID: "other", Bytes: 500}}
	for name, tc := range map[string]struct {
		action podstate.Action
		memory uint64
		fail   map[string][]error
		want   []string
		err    string
	}{
		"keep":                    {action: podstate.Action{Key: podstate.Key{Kind: podstate.KeepAllocation}, Allocation: &resize.Allocation{}, Generation: 3}, want: []string{"keep u generation=3"}},
		"raise":                   {action: podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, ID: "sb"}, want: []string{"updatesandbox sb", "raise"}},
		"raise without a sandbox": {action: podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}}, want: []string{"raise"}},
		"raise, and shrink": {
			action: podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, ID: "sb", Limits: limits}, memory: 499,
			want: []string{"memory id", "memory other", "updatesandbox sb", "raise"},
		},
		"raise, and shrink too far": {
			action: podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, ID: "sb", Limits: limits}, memory: 1000,
			want: []string{"memory id", "memory other"},
			err:  `cannot decrease memory limits: [attempting to set container "c" memory limit (1000) below current usage (1000), attempting to set container "d" memory limit (500) below current usage (1000)]`,
		},
		"raise, and shrink one too far": {
			action: podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, ID: "sb", Limits: limits}, memory: 500,
			want: []string{"memory id", "memory other"},
			err:  `cannot decrease memory limits: attempting to set container "d" memory limit (500) below current usage (500)`,
		},
		"raise, usage not known: it is looked up once more before it is set": {
			action: podstate.Action{Key: podstate.Key{Kind: podstate.RaiseCgroup}, ID: "sb", Limits: limits},
			fail:   map[string][]error{"memory": {errors.New("no stats"), errors.New("no stats")}},
			want:   []string{"memory id", "memory other", "updatesandbox sb", "raise"},
		},
		"grow":            {action: grow, want: []string{"update id shares=512 quota=50000 memory=1000", "saw id"}},
		"shrink":          {action: shrink, memory: 999, want: []string{"memory id", "update id shares=512 quota=50000 memory=1000", "saw id"}},
		"shrink too far":  {action: shrink, memory: 1000, want: []string{"memory id", "refresh"}, err: `cannot decrease memory limits: attempting to set container "c" memory limit (1000) below current usage (1000)`},
		"usage not known": {action: shrink, fail: map[string][]error{"memory": {errors.New("no stats")}}, want: []string{"memory id", "refresh"}, err: "no stats"},
		"refused":         {action: grow, fail: map[string][]error{"update": {errors.New("no")}}, want: []string{"update id shares=512 quota=50000 memory=1000", "refresh"}, err: `resources of container "c": no`},
		"fit":             {action: podstate.Action{Key: podstate.Key{Kind: podstate.FitCgroup}, Generation: 4}, want: []string{"fit", "in effect u generation=4"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{memory: tc.memory, fail: tc.fail}
			before := time.Now()
			result, err := newExecutor(h, Config{}).Do(t.Context(), t.Context(), h.task(tc.action))
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want …%s…", err, tc.err)
			}
			if !slices.Equal(h.log, tc.want) {
				t.Errorf("calls %q, want %q", h.log, tc.want)
			}
			if tc.action.Kind == podstate.KeepAllocation && result.AllocatedAt.Before(before) {
				t.Errorf("allocated at %v", result.AllocatedAt)
			}
		})
	}
}
