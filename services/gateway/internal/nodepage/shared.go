package nodepage

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/polylet/polylet/internal/turn"
)

// freshFor is how long an answer is good for everybody who asks.
const freshFor = time.Second

// shared is one document that is computed at most once a second however many
// ask for it, and not at all while nobody does.
type shared struct {
	turns turn.Turns
	// The rest is for who has the turn.
	at   time.Time
	body []byte
}

func (s *shared) get(ctx context.Context, ask func(context.Context) any) ([]byte, error) {
	done, err := s.turns.TakeWithin(ctx, "")
	if err != nil {
		return nil, err // the viewer has left
	}
	defer done()
	if s.body != nil && time.Since(s.at) < freshFor {
		return s.body, nil
	}
	// One viewer who leaves does not spoil the answer for the next.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	body, err := json.Marshal(ask(ctx))
	if err != nil {
		return nil, fmt.Errorf("encode the page's data: %w", err)
	}
	s.body, s.at = body, time.Now()
	return body, nil
}
