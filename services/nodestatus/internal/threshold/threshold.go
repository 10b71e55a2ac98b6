// Package threshold reads eviction thresholds, and says what of the node's
// capacity they keep back. It is pure, and must never measure what is left.
// Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
package threshold

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Signals that rules know by name.
const (
	Memory            = "memory.available"
	AllocatableMemory = "allocatableMemory.available"
	PID               = "pid.available"
)

// Amount is so much of a signal, or a part of its capacity.
type Amount struct {
	// Quantity is in the signal's unit; Percent of the capacity counts when it is
	// not 0.
	Quantity uint64
	Percent  float64
}

// Of returns the amount in the signal's unit for a capacity. Percentages have the
// precision that the kubelet gives them, so that both speak of the same numbers.
func (a Amount) Of(capacity uint64) uint64 {
	if a.Percent > 0 {
		return uint64(float64(capacity) * float64(float32(a.Percent)/100))
	}
	return a.Quantity
}

// Threshold is one eviction threshold: it is met when less is left. It can be
// compared, and no two of a configuration are equal.
type Threshold struct {
	// Signal is the kubelet's name, e.g. memory.available.
	Signal string
	// Amount is what has to be left.
	Amount
	// Reclaim is how much beyond that has to be left before what was done about it
	// is enough.
	Reclaim Amount
	// Text is the amount as it was written; empty for a percentage.
	Text string
	// Grace is how long it may be met before it counts; 0 for hard thresholds.
	Grace time.Duration
	// Hard is whether it is a hard threshold.
	Hard bool
}

// Enough is what has to be left after something was done about the threshold.
func (t Threshold) Enough(capacity uint64) uint64 { return t.Of(capacity) + t.Reclaim.Of(capacity) }

// Settings are the thresholds of the configuration by signal.
type Settings struct {
	Hard, Soft, SoftGrace, MinimumReclaim map[string]string
	// PodsEnforced is whether the pods together are limited (enforceNodeAllocatable
	// has pods): what they may use has the hard threshold of memory then, too.
	PodsEnforced bool
}

// known are the signals that thresholds may name.
var known = []string{
	AllocatableMemory, "containerfs.available", "containerfs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	Memory, "nodefs.available", "nodefs.inodesFree", PID,
}

// Parse reads the settings: hard thresholds in signal order, then soft ones, then
// what follows from them. 0% and 100% switch a signal off.
func Parse(s Settings) ([]Threshold, error) {
	var out []Threshold
	for _, signal := range slices.Sorted(maps.Keys(s.Hard)) {
		t, on, err := parse(signal, s.Hard[signal])
		if err != nil {
			return nil, fmt.Errorf("evictionHard: %w", err)
		}
		if on {
			t.Hard = true
			out = append(out, t)
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(s.Soft)) {
		t, on, err := parse(signal, s.Soft[signal])
		if err != nil {
			return nil, fmt.Errorf("evictionSoft: %w", err)
		}
		if !on {
			continue
		}
		t.Grace, err = time.ParseDuration(s.SoftGrace[signal])
		if err != nil || t.Grace < 0 {
			return nil, fmt.Errorf("evictionSoftGracePeriod: %s has %q; give it a duration such as 1m30s", signal, s.SoftGrace[signal])
		}
		out = append(out, t)
	}
	if err := reclaim(out, s.MinimumReclaim); err != nil {
		return nil, fmt.Errorf("evictionMinimumReclaim: %w", err)
	}
	return withAllocatable(out, s.PodsEnforced), nil
}

// reclaim gives thresholds what is to be reclaimed at least.
func reclaim(thresholds []Threshold, minimum map[string]string) error {
	for _, signal := range slices.Sorted(maps.Keys(minimum)) {
		if !slices.Contains(known, signal) {
			return unknown(signal)
		}
		amount, err := parseAmount(signal, minimum[signal])
		if err != nil {
			return err
		}
		for i := range thresholds {
			if thresholds[i].Signal == signal {
				thresholds[i].Reclaim = amount
			}
		}
	}
	return nil
}

// withAllocatable gives the memory of all pods the hard threshold of the node's,
// unless it has one of its own.
func withAllocatable(thresholds []Threshold, enforced bool) []Threshold {
	has := func(signal string) int {
		return slices.IndexFunc(thresholds, func(t Threshold) bool { return t.Hard && t.Signal == signal })
	}
	i := has(Memory)
	if !enforced || i < 0 || has(AllocatableMemory) >= 0 {
		return thresholds
	}
	t := thresholds[i]
	t.Signal = AllocatableMemory
	return append(thresholds, t)
}

func unknown(signal string) error {
	return fmt.Errorf("signal %q is not known; known are %s", signal, strings.Join(known, ", "))
}

func parse(signal, text string) (t Threshold, on bool, err error) {
	t.Signal = signal
	if !slices.Contains(known, signal) {
		return t, false, unknown(signal)
	}
	text = strings.TrimSpace(text)
	if t.Amount, err = parseAmount(signal, text); err != nil {
		return t, false, err
	}
	if strings.HasSuffix(text, "%") {
		return t, t.Percent > 0 && t.Percent < 100, nil
	}
	if t.Quantity == 0 {
		return t, false, fmt.Errorf("%s: %q has to be more than 0; write 0%% to switch the signal off", signal, text)
	}
	quantity := resource.MustParse(text)
	t.Text = quantity.String()
	return t, true, nil
}

func parseAmount(signal, text string) (a Amount, err error) {
	text = strings.TrimSpace(text)
	if number, found := strings.CutSuffix(text, "%"); found {
		a.Percent, err = strconv.ParseFloat(number, 64)
		if err != nil || !(a.Percent >= 0 && a.Percent <= 100) {
			return a, fmt.Errorf("%s: %q is not a percentage from 0%% to 100%%", signal, text)
		}
		return a, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return a, fmt.Errorf("%s: %q is neither a quantity such as 100Mi nor a percentage: %w", signal, text, err)
	}
	if quantity.Sign() < 0 {
		return a, fmt.Errorf("%s: %q is less than 0", signal, text)
	}
	a.Quantity = uint64(quantity.Value()) //nolint:gosec // It is not negative.
	return a, nil
}
