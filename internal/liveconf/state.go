package liveconf

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/polylet/polylet/internal/configslice"
)

// Phase is how the configuration stands.
type Phase string

// Good: it is the last known good one. Trying: its owners run it, and are watched.
// WentBack: what the files say was bad, and the last known good one runs. Refused: what
// the files say cannot be used, and the one before runs. Bad: it does not run well, and
// there is none to go back to.
const (
	Good     Phase = "Good"
	Trying   Phase = "Trying"
	WentBack Phase = "WentBack"
	Refused  Phase = "Refused"
	Bad      Phase = "Bad"
)

// State is how the configuration stands, for people.
type State struct {
	// Phase is one of those above.
	Phase Phase `json:"phase"`
	// Generation is that of the configuration that runs.
	Generation uint64 `json:"generation"`
	// Checksum is that of all its fields.
	Checksum string `json:"checksum"`
	// Since is when it came to that.
	Since time.Time `json:"since"`
	// Changes are those that are tried or were bad.
	Changes []configslice.Change `json:"changes,omitempty"`
	// Of is what Error is about; empty: the files.
	Of string `json:"of,omitempty"`
	// Error is what is wrong with what the files say; empty when nothing.
	Error string `json:"error,omitempty"`
	// File keeps the bad configuration.
	File string `json:"file,omitempty"`
}

// Text says in a sentence what a person should know; empty when nothing.
func (s State) Text() string {
	switch s.Phase {
	case Trying:
		return fmt.Sprintf("generation %d is tried: %s", s.Generation, strings.Join(configslice.Texts(s.Changes), ", "))
	case WentBack:
		return fmt.Sprintf("went back to the last known good configuration (generation %d): %s; the bad one is kept as %s: correct %s, or polylet config retry", s.Generation, s.Error, s.File, cmp.Or(s.Of, "the file"))
	case Refused:
		if s.Of != "" {
			return fmt.Sprintf("what %s says is not taken, generation %d goes on without it: %s", s.Of, s.Generation, s.Error)
		}
		return fmt.Sprintf("what the files say is not taken, generation %d goes on: %s", s.Generation, s.Error)
	case Bad:
		return fmt.Sprintf("generation %d does not run well, and there is no last known good one: %s", s.Generation, s.Error)
	}
	return ""
}
