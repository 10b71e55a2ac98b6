package signal

import (
	"slices"
	"time"
)

// Mark is a level of a signal that somebody acts upon.
type Mark struct {
	// Signal is its name.
	Signal string
	// Quantity is the level in the signal's unit; or Percent of the capacity when
	// that is not 0.
	Quantity uint64
	Percent  float64
}

// Level is what it is of a capacity.
func (m Mark) Level(capacity uint64) uint64 {
	if m.Percent > 0 {
		return uint64(float64(capacity) * m.Percent / 100)
	}
	return m.Quantity
}

// Crossed says of each mark whether less is left.
func Crossed(signals []Signal, marks []Mark) []bool {
	out := make([]bool, len(marks))
	for i, m := range marks {
		s, found := find(signals, m.Signal)
		out[i] = found && s.Available < m.Level(s.Capacity)
	}
	return out
}

const (
	// closeBy is the part of the capacity within which a mark is near; soon is how
	// far off it may be in time, at the speed of the last two measurements.
	closeBy = 10
	soon    = 2 * time.Second
)

// Near says whether memory is near a mark, or crossed one. before are the signals
// as they were measured before.
func Near(before, now []Signal, marks []Mark) bool {
	for _, m := range marks {
		s, found := find(now, m.Signal)
		if !found || !ofMemory(s.Name) {
			continue
		}
		level := m.Level(s.Capacity)
		if s.Available < level || s.Available-level < s.Capacity/closeBy {
			return true
		}
		was, found := find(before, m.Signal)
		took := s.Time.Sub(was.Time)
		if !found || took <= 0 || was.Available <= s.Available {
			continue
		}
		perSecond := float64(was.Available-s.Available) / took.Seconds()
		if float64(s.Available-level) < perSecond*soon.Seconds() {
			return true
		}
	}
	return false
}

// Marked says whether a mark is one of memory.
func Marked(marks []Mark) bool {
	return slices.ContainsFunc(marks, func(m Mark) bool { return ofMemory(m.Signal) })
}

// With returns all with those of some that have the same names put in their places.
func With(all, some []Signal) []Signal {
	out := slices.Clone(all)
	for i := range out {
		if s, found := find(some, out[i].Name); found {
			out[i] = s
		}
	}
	return out
}

// OfNode and OfPods say whose memory a mark is about; neither: it is of something else.
func (m Mark) OfNode() bool { return m.Signal == nodeMemory }

// OfPods is like OfNode.
func (m Mark) OfPods() bool { return m.Signal == podsMemory }

func ofMemory(name string) bool { return name == nodeMemory || name == podsMemory }

// Of is the signal that a mark is about; false: it was not measured.
func (m Mark) Of(signals []Signal) (Signal, bool) { return find(signals, m.Signal) }

func find(signals []Signal, name string) (Signal, bool) {
	i := slices.IndexFunc(signals, func(s Signal) bool { return s.Name == name })
	if i < 0 {
		return Signal{}, false
	}
	return signals[i], true
}
