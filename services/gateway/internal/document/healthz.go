package document

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Check is one line of /healthz.
type Check struct {
	// Name as in /healthz/<name> and exclude=<name>.
	Name string
	// Run says what is wrong.
	Run func(ctx context.Context) error
}

// Ping is the check that the process answers.
func Ping() Check { return Check{Name: "ping", Run: func(context.Context) error { return nil }} }

// checkTimeout bounds one check.
const checkTimeout = 3 * time.Second

func (c Check) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return c.Run(ctx)
}

// Shared is c with one run at a time, whose result all get who ask meanwhile:
// anybody may ask for /healthz, and a check is a call to another process.
func Shared(c Check) Check {
	var group singleflight.Group
	run := c.Run
	c.Run = func(ctx context.Context) error {
		done := group.DoChan("", func() (any, error) {
			// Others wait for it when the first who asked has left.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
			defer cancel()
			return nil, run(ctx)
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case result := <-done:
			return result.Err
		}
	}
	return c
}

// Observer is told the result of each check of /healthz.
type Observer interface {
	ObserveCheck(name string, healthy bool)
}

// Healthz serves all checks in order: "ok", or 500 with a line per check. They
// run at once, so that several processes that hang cost one timeout.
func Healthz(to Observer, checks ...Check) http.Handler {
	logged := &said{of: map[string]saying{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		excluded := query["exclude"]
		failures := runAll(r.Context(), checks, excluded)
		var lines strings.Builder
		failed := false
		for i, c := range checks {
			if slices.Contains(excluded, c.Name) {
				fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
				continue
			}
			err := failures[i]
			to.ObserveCheck(c.Name, err == nil)
			if err != nil {
				failed = true
				if logged.news(c.Name, err.Error()) {
					klog.FromContext(r.Context()).Info("Health check failed", "check", c.Name, "err", err)
				}
				// Why is for the log: anybody may ask for /healthz.
				fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
				continue
			}
			if logged.news(c.Name, "") {
				klog.FromContext(r.Context()).Info("Health check passes again", "check", c.Name)
			}
			fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
		}
		var unknown []string
		for _, name := range excluded {
			if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name }) {
				unknown = append(unknown, fmt.Sprintf("%q", name))
			}
		}
		if len(unknown) > 0 {
			fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
		}
		switch {
		case failed:
			httperror.Text(w, http.StatusInternalServerError, lines.String()+"healthz check failed\n")
		case query.Has("verbose"):
			httperror.Text(w, http.StatusOK, lines.String()+"healthz check passed\n")
		default:
			httperror.Text(w, http.StatusOK, "ok")
		}
	})
}

// said is what was logged last of each check: anybody may ask as often as he likes, and a
// check may fail for hours.
type said struct {
	mu sync.Mutex
	of map[string]saying
}

// saying is why a check fails, nothing when it does not, and when that was logged.
type saying struct {
	why string
	at  time.Time
}

// whyAgain is how soon it is logged that a check fails for another reason, which may have
// the time in it.
const whyAgain = 10 * time.Second

func (s *said) news(name, why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, now := s.of[name], time.Now()
	if why == before.why || why != "" && before.why != "" && now.Sub(before.at) < whyAgain {
		return false
	}
	s.of[name] = saying{why, now}
	return true
}

func runAll(ctx context.Context, checks []Check, excluded []string) []error {
	failures := make([]error, len(checks))
	var wait sync.WaitGroup
	for i, c := range checks {
		if !slices.Contains(excluded, c.Name) {
			wait.Go(func() { failures[i] = c.run(ctx) })
		}
	}
	wait.Wait()
	return failures
}

// HealthzOne serves a single check.
func HealthzOne(c Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.run(r.Context()); err != nil {
			httperror.Text(w, http.StatusInternalServerError, fmt.Sprintf("internal server error: %v\n", err))
			return
		}
		httperror.Text(w, http.StatusOK, "ok")
	})
}
