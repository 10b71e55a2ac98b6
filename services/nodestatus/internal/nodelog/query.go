package nodelog

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of a query.
const (
	MostServices  = 4
	LongestName   = 256
	MostTailLines = 100000
	// longestPattern is ours: a regular expression that is longer is no use to
	// a person, and costs whoever evaluates it.
	longestPattern = 1024
)

// Query asks for the log of services.
type Query struct {
	// Services are one to four names.
	Services []string
	// Since and Until bound the entries; zero is no bound.
	Since, Until time.Time
	// TailLines is how many of the last lines are shown; nil is all.
	TailLines *int32
	// Boot is 0 for this one, -1 for that before …; nil is all.
	Boot *int32
	// Pattern is a regular expression that entries match; "" is all.
	Pattern string
}

// Validate says what of the query is not allowed; nil when all is.
// Source: KEP-2258 and https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#log-query.
func (q Query) Validate() error {
	var errs []error
	add := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	add(len(q.Services) > 0, "query: name a service")
	add(len(q.Services) <= MostServices, "query: %d services are too many: %d at most", len(q.Services), MostServices)
	for _, s := range q.Services {
		errs = append(errs, validName(s))
	}
	add(q.Since.IsZero() || q.Until.IsZero() || !q.Until.Before(q.Since), "untilTime: it may not be before sinceTime")
	add(q.TailLines == nil || *q.TailLines >= 0 && *q.TailLines <= MostTailLines, "tailLines: has to be 0 to %d", MostTailLines)
	add(q.Boot == nil || *q.Boot <= 0, "boot: has to be 0 or less")
	add(len(q.Pattern) <= longestPattern && !strings.ContainsRune(q.Pattern, 0), "pattern: longer than %d bytes, or with a zero byte", longestPattern)
	if _, err := syntax.Parse(q.Pattern[:min(len(q.Pattern), longestPattern)], syntax.Perl); err != nil {
		errs = append(errs, fmt.Errorf("pattern: %w", err))
	}
	return errors.Join(errs...)
}

// validName lets pass what names units and nothing that a path or an option of
// a program could be made of.
func validName(s string) error {
	if s == "" || len(s) > LongestName {
		return fmt.Errorf("query: a service's name has 1 to %d bytes, not %d", LongestName, len(s))
	}
	for _, r := range s {
		if !strings.ContainsRune("-_.:@", r) && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return fmt.Errorf("query: service %q: letters, digits and -_.:@ are allowed", s)
		}
	}
	if strings.Trim(s, ".") == "" {
		return fmt.Errorf("query: service %q names a directory", s)
	}
	return nil
}

// hasOptions says whether the journal is to select.
func (q Query) hasOptions() bool {
	return !q.Since.IsZero() || !q.Until.IsZero() || q.TailLines != nil || q.Boot != nil || q.Pattern != ""
}

// journalTime is unambiguous whatever the host's time zone is.
const journalTime = "2006-01-02 15:04:05 UTC"

// arguments are journalctl's for the log of units. Each value stands in one
// argument with its option, so that none can be taken for another option.
func (q Query) arguments(units []string) []string {
	args := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.Since.IsZero() {
		args = append(args, "--since="+q.Since.UTC().Format(journalTime))
	}
	if !q.Until.IsZero() {
		args = append(args, "--until="+q.Until.UTC().Format(journalTime))
	}
	if q.TailLines != nil {
		args = append(args, "--pager-end", "--lines="+strconv.Itoa(int(*q.TailLines)))
	}
	for _, unit := range units {
		args = append(args, "--unit="+unit)
	}
	if q.Pattern != "" {
		args = append(args, "--grep="+q.Pattern)
	}
	if q.Boot != nil {
		args = append(args, "--boot="+strconv.Itoa(int(*q.Boot)))
	}
	return args
}

// inJournal says whether the journal, which knows the given units, has a service.
func inJournal(units []string, service string) bool {
	return slices.Contains(units, service) || slices.Contains(units, service+".service")
}

// candidates are the files that may hold a service's log, best first.
func candidates(service string) []string {
	return []string{service, service + ".log", service + "/" + service + ".log"}
}
