// Package slots bounds how much of something there is at once, in all and of one of
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

// Take takes so many slots, or none and is false when there are fewer for this one. Who
// took them gives them back.
func (s *Slots) Take(whose string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all+n > s.most || s.of[whose]+n > s.mostOfOne {
		return false
	}
	s.all += n
	s.of[whose] += n
	return true
}

// GiveBack gives back so many slots that this one has.
func (s *Slots) GiveBack(whose string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all -= n
	if s.of[whose] -= n; s.of[whose] == 0 {
		delete(s.of, whose)
	}
}
