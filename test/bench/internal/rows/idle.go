package rows

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/bench/internal/usage"
)

// probedPeriod is how often the probes of the pods that only cost are tried, s.
const probedPeriod = 10

// idleWith adds pods up to a number and measures a while in which nothing happens.
func (m *rows) idleWith(ctx context.Context, prefix string, from, to int, probed bool) error {
	build := stage.Pod
	what := fmt.Sprintf("%d pods", to)
	if probed {
		build, what = probedPod, what+", probed"
	}
	if err := m.addPodsOf(ctx, numbered(prefix, from, to), build); err != nil {
		return err
	}
	return m.idle(ctx, what)
}

func probedPod(name string) *corev1.Pod {
	pod := stage.Pod(name)
	app := &pod.Spec.Containers[0]
	app.Args = []string{"http", "port=8080"}
	app.LivenessProbe, app.ReadinessProbe = httpProbe(probedPeriod), httpProbe(probedPeriod)
	return pod
}

// idleCost is what was used and asked since the agent's start.
type idleCost struct {
	cpu      map[string]float64 // ms, by process
	requests map[string]float64 // to the apiserver, by verb and resource
	calls    map[string]float64 // to the runtime, by method
	at       time.Time
}

func (m *rows) cost(ctx context.Context) (idleCost, error) {
	now := idleCost{at: time.Now()}
	var err error
	if now.cpu, err = usage.CPUOfEach(m.st.Node); err != nil {
		return now, err
	}
	if now.requests, err = nodeRequests(m.st); err != nil {
		return now, err
	}
	now.calls, err = runtimeCalls(ctx, m.st)
	return now, err
}

// idle lets things settle and measures what nothing costs. Everything is given
// per minute, however long it was measured.
func (m *rows) idle(ctx context.Context, what string) error {
	if err := stage.Sleep(ctx, m.s.Settle); err != nil {
		return err
	}
	before, err := m.cost(ctx)
	if err != nil {
		return err
	}
	if err := stage.Sleep(ctx, m.s.Idle); err != nil {
		return err
	}
	after, err := m.cost(ctx)
	if err != nil {
		return err
	}
	minutes := after.at.Sub(before.at).Minutes()
	m.addCost("CPU per idle minute, "+what+", ms", "", before.cpu, after.cpu, minutes)
	m.addCost("apiserver requests per idle minute, "+what, "apiserver", before.requests, after.requests, minutes)
	m.addCost("runtime calls per idle minute, "+what, "runtime", before.calls, after.calls, minutes)
	held, err := usage.Of(m.st.Node)
	m.c.Add("memory (PSS), "+what+", MiB", held.PSS)
	return err
}

// addCost adds the sum of what has grown, and says of what it is: to the report
// when it is of processes, else to who watches.
func (m *rows) addCost(row, kind string, before, after map[string]float64, minutes float64) {
	var sum float64
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		grown := (after[name] - before[name]) / minutes
		sum += grown
		if grown > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f", name, grown))
		}
		if kind == "" && len(after) > 1 {
			m.c.Add("· "+name+": "+row, grown)
		}
	}
	m.c.Add(row, sum)
	fmt.Fprintf(os.Stderr, "  %s: %.0f (%s)\n", row, sum, strings.Join(parts, ", "))
}
