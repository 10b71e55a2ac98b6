package api

import (
	"context"
	"flag"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/rounds"
)

// Settings are the flags of `bench api`.
type Settings struct {
	rounds.Config
	// Burst is how many pods the node has.
	Burst int
	// Requests is how often each document is asked for over a warm connection;
	// 0 leaves the documents out.
	Requests int
	// Streams measures exec, logs and port-forward too: Samples short commands,
	// and 128 MiB through each stream Repeats times.
	Streams          bool
	Samples, Repeats int
	// Bodies is a directory for the last of each document; empty keeps none.
	Bodies string
}

// Command adds its flags and returns what measures.
func Command(fs *flag.FlagSet) func(context.Context) error {
	var s Settings
	s.Flags(fs)
	fs.IntVar(&s.Burst, "burst", 30, "pods on the node")
	fs.IntVar(&s.Requests, "requests", 100, "how often each document is asked for over a warm connection; 0 leaves the documents out")
	fs.BoolVar(&s.Streams, "streams", true, "exec, logs and port-forward too")
	fs.IntVar(&s.Samples, "samples", 20, "how often the shortest command is run")
	fs.IntVar(&s.Repeats, "repeats", 5, "how often 128 MiB go through each stream")
	fs.StringVar(&s.Bodies, "bodies", "", "directory for the last of each document")
	return func(ctx context.Context) error {
		return rounds.Run(ctx, s.Config, "api",
			func(ctx context.Context, agent string, r *report.Results) error { return measure(ctx, s, agent, r) },
			func(r *report.Results, now time.Time) string { return table(s, r, now) })
	}
}
