package logs

import (
	"net/url"
	"testing"
)

func TestOneStreamIsAskedForBehindItsGateAndNotFromTheEnd(t *testing.T) {
	for _, c := range []struct {
		query   string
		streams bool
		status  int
	}{
		{"stream=Stderr", false, 400},
		{"stream=Stderr", true, 0},
		{"stream=Stdout&limitBytes=5", true, 0},
		{"stream=All&tailLines=1", true, 0},
		{"stream=All&tailLines=1", false, 0},
		{"stream=Stdout&tailLines=1", true, 422},
		{"stream=stdout", true, 422},
	} {
		query, err := url.ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		o, status, message := parse(query, c.streams)
		if status != c.status {
			t.Errorf("%s (gate %v): %d %q, want %d", c.query, c.streams, status, message, c.status)
		}
		if status == 0 && *o.Stream != query.Get("stream") {
			t.Errorf("%s became %v", c.query, *o.Stream)
		}
	}
}
