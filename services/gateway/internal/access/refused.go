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
	// mostRefused bounds them.
	mostRefused = 1024
)

// refusedTokens remembers which tokens the apiserver said are nobody's, by their hashes.
// The zero value is ready.
type refusedTokens struct {
	mu sync.Mutex
	of map[[sha256.Size]byte]time.Time // when it was said
}

func (r *refusedTokens) has(token string) bool {
	hash := sha256.Sum256([]byte(token))
	r.mu.Lock()
	defer r.mu.Unlock()
	said, ok := r.of[hash]
	return ok && time.Since(said) < refusedFor
}

// note takes any other out for the next when there are too many.
func (r *refusedTokens) note(token string) {
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
	r.of[hash] = time.Now()
}
