package access

import (
	"crypto/sha256"
	"errors"
	"sync"
	"time"
)

// errRefused is what a token gets that was nobody's a moment ago.
var errRefused = errors.New("invalid bearer token, as the apiserver said a moment ago")

const (
	// refusedFor is how long nobody asks again about a token that is nobody's. The
	// library keeps no such answer when the apiserver says why.
	refusedFor = 10 * time.Second
	// failedFor is how long nobody does where the apiserver gave a reason that may pass: its
	// database or a webhook of its own did not answer, say. It says so in the same words as
	// that a token has expired, about which one could have it asked without end.
	failedFor = time.Second
	// nobodys is all that an apiserver says of a token that nobody knows.
	nobodys = "invalid bearer token"
	// mostRefused bounds them.
	mostRefused = 1024
)

// refusedTokens remembers which tokens the apiserver said are nobody's, by their hashes.
// The zero value is ready.
type refusedTokens struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]time.Time // until when it counts
}

func (r *refusedTokens) has(token string) bool {
	hash := sha256.Sum256([]byte(token))
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.of[hash]
	return ok && time.Now().Before(until)
}

// note notes a refusal, with the reason that the apiserver gave. It takes any other out for
// the next when there are too many.
func (r *refusedTokens) note(token, reason string) {
	hash := sha256.Sum256([]byte(token))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[[sha256.Size]byte]time.Time{}
	}
	for other := range r.of {
		if len(r.of) < mostRefused {
			break
		}
		delete(r.of, other)
	}
	keep := refusedFor
	if reason != "" && reason != nobodys {
		keep = failedFor
	}
	r.of[hash] = time.Now().Add(keep)
}
