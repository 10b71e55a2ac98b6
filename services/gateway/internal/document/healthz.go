package document

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/polylet/polylet/services/gateway/internal/answer"
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

// Healthz serves all checks in order: "ok", or 500 with a line per check.
func Healthz(checks ...Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		var lines strings.Builder
		var failed []string
		for _, c := range checks {
			if slices.Contains(query["exclude"], c.Name) {
				fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
				continue
			}
			if err := c.run(r.Context()); err != nil {
				failed = append(failed, c.Name)
				logr.FromContextOrDiscard(r.Context()).Info("Health check failed", "check", c.Name, "reason", err.Error())
				// Why is for the log: anybody may ask for /healthz.
				fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
				continue
			}
			fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
		}
		for _, name := range query["exclude"] {
			if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == name }) {
				fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %q\n", name)
			}
		}
		switch {
		case len(failed) > 0:
			answer.Text(w, http.StatusInternalServerError, lines.String()+"healthz check failed\n")
		case query.Has("verbose"):
			answer.Text(w, http.StatusOK, lines.String()+"healthz check passed\n")
		default:
			answer.Text(w, http.StatusOK, "ok")
		}
	})
}

// HealthzOne serves a single check.
func HealthzOne(c Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.run(r.Context()); err != nil {
			answer.Text(w, http.StatusInternalServerError, fmt.Sprintf("internal server error: %v\n", err))
			return
		}
		answer.Text(w, http.StatusOK, "ok")
	})
}
