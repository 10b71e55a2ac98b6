// Package slots bounds how many of something there are at once, in all and of one of
// those who have it. It must never wait, nor know what is counted.
package slots

import "sync"

// Slots are safe for concurrent use; see New.
type Slots struct {
	most, mostOfOne int

	mu  sync.Mutex
	all int
	of  map[string]int
}

// New returns so many slots, of which one may have mostOfOne.
func New(most, mostOfOne int) *Slots {
	return &Slots{most: most, mostOfOne: mostOfOne, of: map[string]int{}}
}

// Take returns what gives a slot back, to be called once, or nil when none is free for
// this one.
func (s *Slots) Take(whose string) (giveBack func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.most || s.of[whose] >= s.mostOfOne {
		return nil
	}
	s.all++
	s.of[whose]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.of[whose]--; s.of[whose] == 0 {
			delete(s.of, whose)
		}
	}
}
