package reason

import (
	"strings"
	"time"
)

// saidAgain is how often a failure is said that lasts, be it always the same.
const saidAgain = time.Hour

// saidKept is how much of a text is kept, in bytes: a driver's may be of megabytes.
const saidKept = 4 << 10

// Said is what was said last of a failure of something that is tried again and again: who
// reads a log hears when it becomes another, and does not have to know its first hour. The
// zero one has said nothing. Not safe for concurrent use.
type Said struct {
	since, at time.Time
	text      string
}

// Failed says since when it fails, and whether that is to be said now: for the first time, as
// it is not Alike what was said last, or after an hour.
func (s *Said) Failed(err error) (since time.Time, tell bool) {
	now, text := time.Now(), err.Error()
	text = strings.Clone(text[:min(len(text), saidKept)])
	if s.since.IsZero() {
		s.since = now
	} else if now.Sub(s.at) < saidAgain && Alike(s.text, text) {
		return s.since, false
	}
	s.at, s.text = now, text
	return s.since, true
}

// Good says that it fails no more: whether it has, and for how long.
func (s *Said) Good() (lasted time.Duration, was bool) {
	if s.since.IsZero() {
		return 0, false
	}
	lasted = time.Since(s.since)
	*s = Said{}
	return lasted, true
}
