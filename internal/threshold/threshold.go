// Package threshold reads eviction thresholds, and says what of the node's
// capacity they keep back: the one owner of what a threshold may be, for whoever
// validates a configuration and for whoever evicts by it. It is pure, and must never
// measure what is left.
// Source: https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
package threshold

import (
	"errors"
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
	// Hard is whether it is a hard threshold, or a soft one without a grace period, which acts
	// as one.
	Hard bool
	// Soft is whether it is of evictionSoft: of those nothing is kept from allocatable.
	Soft bool
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
// what follows from them. 0% and 100% switch a signal off, 100.0% does not. The error names all that is
// wrong, each by its field and signal.
func Parse(s Settings) ([]Threshold, error) {
	var wrong []error
	out := parseAll("evictionHard", s.Hard, &wrong)
	for i := range out {
		out[i].Hard = true
	}
	graces := parseGraces(s.SoftGrace, &wrong)
	for _, t := range parseAll("evictionSoft", s.Soft, &wrong) {
		if _, given := s.SoftGrace[t.Signal]; !given {
			wrong = append(wrong, invalid("evictionSoftGracePeriod", t.Signal, "", "a duration such as 1m30s, since evictionSoft has this signal"))
		}
		// Without a grace period it acts as a hard one, as with a kubelet.
		t.Grace = graces[t.Signal]
		t.Hard = t.Grace == 0
		if !slices.Contains(out, t) {
			t.Soft = true
			out = append(out, t)
		}
	}
	reclaim(out, s.MinimumReclaim, &wrong)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return withAllocatable(out, s.PodsEnforced), nil
}

// parseAll reads the thresholds of a field that are on, in signal order.
func parseAll(field string, texts map[string]string, wrong *[]error) []Threshold {
	var out []Threshold
	for _, signal := range slices.Sorted(maps.Keys(texts)) {
		t, on, err := parse(field, signal, texts[signal])
		if err != nil {
			*wrong = append(*wrong, err)
		} else if on {
			out = append(out, t)
		}
	}
	return out
}

// parseGraces reads how long soft thresholds may be met. One of a signal without a
// threshold has no effect, but has to be a time all the same, as with the kubelet.
func parseGraces(texts map[string]string, wrong *[]error) map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, signal := range slices.Sorted(maps.Keys(texts)) {
		grace, err := time.ParseDuration(texts[signal])
		switch {
		case !slices.Contains(known, signal):
			*wrong = append(*wrong, unknown("evictionSoftGracePeriod", signal))
		case err != nil || grace < 0:
			*wrong = append(*wrong, invalid("evictionSoftGracePeriod", signal, texts[signal], "a duration such as 1m30s"))
		default:
			out[signal] = grace
		}
	}
	return out
}

// reclaim gives thresholds what is to be reclaimed at least.
func reclaim(thresholds []Threshold, minimum map[string]string, wrong *[]error) {
	for _, signal := range slices.Sorted(maps.Keys(minimum)) {
		amount, err := parseAmount("evictionMinimumReclaim", signal, minimum[signal])
		if err != nil {
			*wrong = append(*wrong, err)
		}
		for i := range thresholds {
			if thresholds[i].Signal == signal {
				thresholds[i].Reclaim = amount
			}
		}
	}
}

// withAllocatable gives the memory of all pods the hard thresholds of the node's, beside those
// of its own, as a kubelet does.
func withAllocatable(thresholds []Threshold, enforced bool) []Threshold {
	if !enforced {
		return thresholds
	}
	for _, t := range thresholds {
		if !t.Hard || t.Signal != Memory {
			continue
		}
		if t.Signal = AllocatableMemory; !slices.Contains(thresholds, t) {
			thresholds = append(thresholds, t)
		}
	}
	return thresholds
}

// unknown says which signals a field may name.
func unknown(field, signal string) error {
	return fmt.Errorf("%s: invalid value %q: one of %s", field, signal, strings.Join(known, ", "))
}

// invalid says what is wrong with a field's text of a signal, and what mends it.
func invalid(field, signal, text, mend string) error {
	return fmt.Errorf("%s.%s: invalid value %q: %s", field, signal, text, mend)
}

func parse(field, signal, text string) (t Threshold, on bool, err error) {
	t.Signal = signal
	if t.Amount, err = parseAmount(field, signal, text); err != nil {
		return t, false, err
	}
	if strings.HasSuffix(text, "%") {
		return t, t.Percent > 0 && text != "100%", nil // A kubelet, too, goes by the text.
	}
	if t.Quantity == 0 {
		return t, false, invalid(field, signal, text, "more than 0; 0% switches the signal off")
	}
	quantity := resource.MustParse(text)
	t.Text = quantity.String()
	return t, true, nil
}

// parseAmount takes no spaces around an amount: the kubelet does not either.
func parseAmount(field, signal, text string) (a Amount, err error) {
	if !slices.Contains(known, signal) {
		return a, unknown(field, signal)
	}
	if number, found := strings.CutSuffix(text, "%"); found {
		a.Percent, err = strconv.ParseFloat(number, 64)
		if err != nil || !(a.Percent >= 0 && a.Percent <= 100) {
			return a, invalid(field, signal, text, "a percentage from 0% to 100%")
		}
		return a, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return a, invalid(field, signal, text, "a quantity or a percentage, e.g. 100Mi or 10%")
	}
	if quantity.Sign() < 0 {
		return a, invalid(field, signal, text, "0 or more")
	}
	a.Quantity = uint64(quantity.Value()) //nolint:gosec // It is not negative.
	return a, nil
}
