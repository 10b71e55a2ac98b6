// Package debug serves what people use to look into the processes: profiles of
// each by name, and the verbosity of all five. It must never measure anything
// itself.
package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Profile asks for one profile; see net/http/pprof for what its fields mean.
type Profile struct {
	// Name is empty for the page that lists them.
	Name string
	// Seconds is 0 for the profile's own default.
	Seconds, Debug int32
	GC             bool
	// Symbols is the raw query of symbol.
	Symbols string
}

// Process is one of the five. Errors are of rpcerr's classes.
type Process interface {
	// Profile returns the pieces of a profile and its content type, which the
	// first call gives; io.EOF at the end.
	Profile(ctx context.Context, p Profile) (next func() (contentType string, data []byte, err error), err error)
	// SetVerbosity changes klog's -v.
	SetVerbosity(ctx context.Context, level int32) error
}

// Named is a process with its name.
type Named struct {
	Name    string
	Process Process
}

// Pprof serves /debug/pprof/. The path /debug/pprof/<process>/<profile> is that
// process's; without a process it is the first one's, podsync, which does what
// most of a kubelet's profile is about.
func Pprof(processes ...Named) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		process := processes[0]
		name := strings.TrimPrefix(r.URL.Path, "/debug/pprof/")
		for _, p := range processes {
			if rest, ok := strings.CutPrefix(name+"/", p.Name+"/"); ok {
				if name == p.Name {
					http.Redirect(w, r, name+"/", http.StatusMovedPermanently)
					return
				}
				process, name = p, strings.TrimSuffix(rest, "/")
				break
			}
		}
		profile, err := parse(name, r.URL)
		if err != nil {
			httperror.Text(w, http.StatusBadRequest, err.Error())
			return
		}
		send(w, r, process, profile, links(r.URL.Path, processes))
	})
}

// links leads from the first page to those of the processes.
func links(path string, processes []Named) string {
	if path != "/debug/pprof/" {
		return ""
	}
	var b strings.Builder
	b.WriteString("<p>processes:")
	for _, p := range processes {
		fmt.Fprintf(&b, " <a href='%s/'>%s</a>", p.Name, p.Name)
	}
	fmt.Fprintf(&b, "; what follows is %s's</p>\n", processes[0].Name)
	return b.String()
}

// parse reads a profile's parameters. What is not a number is taken for 0, as
// net/http/pprof does, except seconds, where that would be a surprise.
func parse(name string, u *url.URL) (Profile, error) {
	p := Profile{Name: name}
	if name == "symbol" {
		p.Symbols = u.RawQuery
		return p, nil
	}
	query := u.Query()
	if text := query.Get("seconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return p, fmt.Errorf("invalid value for %q - must be a positive integer", "seconds")
		}
		p.Seconds = int32(n)
	}
	debug, _ := strconv.ParseInt(query.Get("debug"), 10, 32)
	gc, _ := strconv.Atoi(query.Get("gc"))
	p.Debug, p.GC = int32(debug), gc > 0
	return p, nil
}

func send(w http.ResponseWriter, r *http.Request, process Named, p Profile, before string) {
	next, err := process.Process.Profile(r.Context(), p)
	if err != nil {
		httperror.Error(w, process.Name, err)
		return
	}
	contentType, data, err := next()
	if err != nil && !errors.Is(err, io.EOF) {
		if errors.Is(err, rpcerr.ErrNotFound) {
			httperror.Text(w, http.StatusNotFound, "Unknown profile")
			return
		}
		httperror.Error(w, process.Name, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	if contentType == "application/octet-stream" {
		h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%s"`, process.Name, p.Name))
	}
	if _, err := io.WriteString(w, before); err != nil {
		return
	}
	for ; err == nil; _, data, err = next() {
		if _, err := w.Write(data); err != nil {
			return
		}
	}
	if !errors.Is(err, io.EOF) {
		panic(http.ErrAbortHandler) // so that the client sees that it is not whole
	}
}

// longestBody bounds what /debug/flags/v reads.
const longestBody = 64

// Verbosity serves /debug/flags/v: the body of a PUT is the new klog -v of all
// processes. Those that cannot be asked are named in the answer.
func Verbosity(processes ...Named) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestBody))
		if err != nil {
			httperror.Text(w, http.StatusBadRequest, "error reading request body: "+err.Error()+"\n")
			return
		}
		level, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
		if err != nil || level < 0 {
			httperror.Text(w, http.StatusBadRequest, fmt.Sprintf("failed set klog.logging.verbosity %q: not a number, 0 or more\n", text))
			return
		}
		if err := setAll(r.Context(), processes, int32(level)); err != nil {
			status := httperror.Status(err)
			httperror.Text(w, status, fmt.Sprintf("failed set klog.logging.verbosity %d: %v\n", level, err))
			return
		}
		httperror.Text(w, http.StatusOK, fmt.Sprintf("successfully set klog.logging.verbosity to %d\n", level))
	})
}

func setAll(ctx context.Context, processes []Named, level int32) error {
	errs := make([]error, len(processes))
	var wait sync.WaitGroup
	for i, p := range processes {
		wait.Go(func() {
			if err := p.Process.SetVerbosity(ctx, level); err != nil {
				errs[i] = fmt.Errorf("%s: %w", p.Name, err)
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
