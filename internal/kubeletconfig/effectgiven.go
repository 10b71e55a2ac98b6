package kubeletconfig

import "fmt"

// idleGiven are settings that have their effect with another only, or on another machine.
func (l *Loaded) idleGiven() []Notice {
	var out []Notice
	set := l.Origins()
	add := func(setting string, value any, text string) {
		_, said := set[setting]
		out = append(out, Notice{Setting: setting, Value: compactJSON(value), Text: text, Default: !said})
	}
	if c := l.Config; len(c.QOSReserved) > 0 && !l.gates["QOSReserved"] {
		add("qosReserved", c.QOSReserved, "has no effect: the gate QOSReserved is off")
	}
	if factor := l.Config.MemoryThrottlingFactor; factor != nil && *factor != *actsAs().MemoryThrottlingFactor && !l.gates["MemoryQoS"] {
		add("memoryThrottlingFactor", *factor, "has no effect: the gate MemoryQoS is off")
	}
	if l.gates["MemoryQoS"] && !cgroupV2() {
		out = append(out, Notice{Setting: "featureGates.MemoryQoS", Value: fmt.Sprint(true), Text: "has no effect: this machine has cgroup v1, which protects no memory"})
	}
	return out
}
