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

// Threshold is one eviction threshold: it is met when less is left.
type Threshold struct {
	// Signal is the kubelet's name, e.g. memory.available.
	Signal string
	// Quantity is what has to be left, in the signal's unit; or Percent of the
	// capacity when that is not 0.
	Quantity uint64
	Percent  float64
	// Grace is how long it may be met before it counts; 0 for hard thresholds.
	Grace time.Duration
	// Hard is whether it is a hard threshold.
	Hard bool
}

// Of returns the threshold in the signal's unit for a capacity.
func (t Threshold) Of(capacity uint64) uint64 {
	if t.Percent > 0 {
		return uint64(float64(capacity) * t.Percent / 100)
	}
	return t.Quantity
}

// known are the signals that thresholds may name.
var known = []string{
	"allocatableMemory.available", "containerfs.available", "containerfs.inodesFree", "imagefs.available", "imagefs.inodesFree",
	"memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available",
}

// Parse reads the evictionHard, evictionSoft and evictionSoftGracePeriod maps
// of the configuration, in signal order. 0% and 100% switch a signal off.
func Parse(hard, soft, softGrace map[string]string) ([]Threshold, error) {
	var out []Threshold
	for _, signal := range slices.Sorted(maps.Keys(hard)) {
		t, on, err := parse(signal, hard[signal])
		if err != nil {
			return nil, fmt.Errorf("evictionHard: %w", err)
		}
		if on {
			t.Hard = true
			out = append(out, t)
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(soft)) {
		t, on, err := parse(signal, soft[signal])
		if err != nil {
			return nil, fmt.Errorf("evictionSoft: %w", err)
		}
		if !on {
			continue
		}
		t.Grace, err = time.ParseDuration(softGrace[signal])
		if err != nil || t.Grace < 0 {
			return nil, fmt.Errorf("evictionSoftGracePeriod: %s has %q; give it a duration such as 1m30s", signal, softGrace[signal])
		}
		out = append(out, t)
	}
	return out, nil
}

func parse(signal, text string) (t Threshold, on bool, err error) {
	t.Signal = signal
	if !slices.Contains(known, signal) {
		return t, false, fmt.Errorf("signal %q is not known; known are %s", signal, strings.Join(known, ", "))
	}
	text = strings.TrimSpace(text)
	if number, found := strings.CutSuffix(text, "%"); found {
		t.Percent, err = strconv.ParseFloat(number, 64)
		if err != nil || t.Percent < 0 || t.Percent > 100 {
			return t, false, fmt.Errorf("%s: %q is not a percentage from 0%% to 100%%", signal, text)
		}
		return t, t.Percent > 0 && t.Percent < 100, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return t, false, fmt.Errorf("%s: %q is neither a quantity such as 100Mi nor a percentage: %w", signal, text, err)
	}
	if quantity.Sign() <= 0 {
		return t, false, fmt.Errorf("%s: %q has to be more than 0; write 0%% to switch the signal off", signal, text)
	}
	t.Quantity = uint64(quantity.Value())
	return t, true, nil
}
