// Package nodelog serves /logs/: the files of the node's log directory, and the
// logs of services. It reads queries and writes what nodestatus sends; it must
// never touch a file of the host.
package nodelog

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
)

// Limits of a query. nodestatus checks them again.
const (
	mostServices  = 4
	longestName   = 256
	mostTailLines = 100000
	longestRegexp = 1024
)

// Query is what the parameters of /logs/ ask for.
type Query struct {
	// Services are names; Files are paths below the log directory.
	Services, Files []string
	// Since and Until are nil when they are not given.
	Since, Until    *time.Time
	TailLines, Boot *int32
	Pattern         string
}

// refusal is an error with its HTTP status.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }

// parse reads a query; nil without an error when there is none, so that the
// path is meant. What cannot be read is a 400, what is not allowed a 406.
// Source: KEP-2258 and https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#log-query.
func parse(values url.Values) (*Query, *refusal) {
	q := &Query{Pattern: values.Get("pattern")}
	var errs []error
	for _, text := range values["query"] {
		switch {
		case strings.ContainsAny(text, `/\`):
			q.Files = append(q.Files, text)
		case strings.TrimSpace(text) != "":
			q.Services = append(q.Services, text)
		}
	}
	if values.Has("query") && len(q.Files)+len(q.Services) == 0 {
		errs = append(errs, fmt.Errorf("query: Invalid value: %q: query cannot be empty", values["query"]))
	}
	read := func(name string, to func(text string) error) {
		if text := values.Get(name); text != "" {
			if err := to(text); err != nil {
				errs = append(errs, fmt.Errorf("%s: Invalid value: %q: %w", name, text, err))
			}
		}
	}
	read("sinceTime", moment(&q.Since))
	read("untilTime", moment(&q.Until))
	read("tailLines", number(&q.TailLines))
	read("boot", number(&q.Boot))
	if len(errs) > 0 {
		return nil, &refusal{http.StatusBadRequest, errors.Join(errs...)}
	}
	if len(q.Files)+len(q.Services) == 0 && !q.hasOptions() {
		return nil, nil
	}
	if err := q.validate(); err != nil {
		return nil, &refusal{http.StatusNotAcceptable, err}
	}
	return q, nil
}

func moment(to **time.Time) func(string) error {
	return func(text string) error {
		at, err := time.Parse(time.RFC3339, text)
		*to = &at
		return err
	}
}

func number(to **int32) func(string) error {
	return func(text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		n32 := int32(n)
		*to = &n32
		return err
	}
}

func regular(text string) error {
	if len(text) > longestRegexp {
		return fmt.Errorf("it is longer than %d bytes", longestRegexp)
	}
	_, err := syntax.Parse(text, syntax.Perl)
	return err
}

func (q *Query) hasOptions() bool {
	return q.Since != nil || q.Until != nil || q.TailLines != nil || q.Boot != nil || q.Pattern != ""
}

func (q *Query) validate() error {
	var errs []error
	add := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	add(len(q.Services)+len(q.Files) > 0, "query: Required value: cannot be empty with options")
	add(len(q.Services) <= mostServices, "query: Invalid value: %q: %d services at most", q.Services, mostServices)
	add(len(q.Files) <= 1, "query: Invalid value: %q: cannot specify more than one file", q.Files)
	add(len(q.Services) == 0 || len(q.Files) == 0, "query: Invalid value: cannot specify a file and services")
	add(len(q.Files) == 0 || !q.hasOptions(), "query: Invalid value: cannot specify file with options")
	for _, s := range q.Services {
		add(len(s) <= longestName && strings.Trim(s, nameLetters) == "" && strings.Trim(s, ".") != "",
			"query: Invalid value: %q: a service has letters, digits and -_.:@, %d at most", s, longestName)
	}
	for _, f := range q.Files {
		add(local(file(f)), "query: Invalid value: %q: it is not below /var/log", f)
	}
	add(q.Since == nil || q.Until == nil || !q.Until.Before(*q.Since), "untilTime: Invalid value: must be after `sinceTime`")
	add(q.TailLines == nil || *q.TailLines >= 0 && *q.TailLines <= mostTailLines, "tailLines: Invalid value: must be between 0 and %d", mostTailLines)
	if err := regular(q.Pattern); err != nil {
		add(false, "pattern: Invalid value: %q: %w", q.Pattern, err)
	}
	add(q.Boot == nil || *q.Boot <= 0, "boot: Invalid value: must be less than 1")
	return errors.Join(errs...)
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:@"

// file turns the path of a query into one below the log directory; clients on
// Windows write \.
func file(text string) string { return strings.TrimPrefix(strings.ReplaceAll(text, `\`, "/"), "/") }

// local says whether a path stays where it begins.
func local(name string) bool {
	clean := path.Clean(name)
	return clean != ".." && !strings.HasPrefix(clean, "../") && !path.IsAbs(clean) && !strings.ContainsRune(name, 0)
}
