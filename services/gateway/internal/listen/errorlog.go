package listen

import (
	"log"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// sayLineAgain is how often what net/http has to say stands in the log at most.
// Anybody who reaches a port can make it say something, with HTTP/2 once for each
// frame of a few bytes.
const sayLineAgain = 10 * time.Second

// errorLog passes on what net/http has to say, one line in a while and how many
// there were beside it. A panic, which is a fault of ours, has its own while.
func errorLog(l logr.Logger) *log.Logger {
	var panics, others while
	return log.New(writer(func(line string) {
		of := &others
		if strings.HasPrefix(line, "http: panic serving") {
			of = &panics
		}
		if left, ok := of.say(time.Now()); ok {
			l.Info("HTTP server reports", "message", line, "leftOut", left)
		}
	}), "", 0)
}

// while counts what is left out of the log. The zero value is ready.
type while struct {
	mu    sync.Mutex
	until time.Time
	left  int
}

// say says whether a line may go out now, and how many were left out since the
// last one did.
func (w *while) say(now time.Time) (left int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Before(w.until) {
		w.left++
		return 0, false
	}
	left = w.left
	w.left, w.until = 0, now.Add(sayLineAgain)
	return left, true
}

type writer func(string)

func (w writer) Write(p []byte) (int, error) {
	w(strings.TrimSpace(string(p)))
	return len(p), nil
}
