package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/gateway/internal/httperror"
)

// Filter lets requests pass that are authenticated and authorised.
type Filter struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	Attributes    Attributes
	// Admitted is told of each request that may pass and of whom it is known whose it is;
	// nil tells nobody.
	Admitted func(ctx context.Context)
	// Familiar gets the addresses of these; nil remembers none.
	Familiar *Familiar
}

// reviewTimeout bounds what the apiserver may take for one request's reviews,
// retries included.
const reviewTimeout = 30 * time.Second

// Wrap returns a handler that serves next to those who may have it. It runs
// before routing: who may not ask does not learn which paths exist.
func (f Filter) Wrap(next http.Handler) http.Handler {
	quiet := &quiet{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.allow(w, r, quiet) {
			// Nothing behind this point has a use for the caller's secrets, and
			// streams are passed on to the runtime with their headers.
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r)
		}
	})
}

// admit notes that somebody is let in. Whom everybody may be is as unknown as before:
// where all may ask for /healthz, a flood of those would have the places of who is known.
func (f Filter) admit(who user.Info, r *http.Request) {
	if who.GetName() == user.Anonymous {
		return
	}
	f.Familiar.note(r.RemoteAddr)
	if f.Admitted != nil {
		f.Admitted(r.Context())
	}
}

// busy answers a request for whose review there is no place.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	httperror.Text(w, http.StatusTooManyRequests, errTooMany.Error())
}

func (f Filter) allow(w http.ResponseWriter, r *http.Request, quiet *quiet) bool {
	ctx, cancel := context.WithTimeout(withAddress(r), reviewTimeout)
	defer cancel()
	log := klog.FromContext(r.Context())
	info, ok, err := f.Authenticator.AuthenticateRequest(r.WithContext(ctx))
	if errors.Is(err, errTooMany) {
		busy(w)
		return false
	}
	if err != nil || !ok {
		if err != nil && quiet.speak(time.Now()) {
			log.Info("Unable to authenticate a request", "path", shown(r.URL.Path), "address", r.RemoteAddr, "err", err)
		}
		httperror.Text(w, http.StatusUnauthorized, "Unauthorized")
		return false
	}
	sets, subresources := f.Attributes.For(info.User, r)
	if len(sets) == 0 {
		httperror.Text(w, http.StatusForbidden, "Authorization error: could not determine attributes for request")
		return false
	}
	for _, a := range sets {
		decision, _, err := f.Authorizer.Authorize(ctx, a)
		if errors.Is(err, errTooMany) {
			busy(w)
			return false
		}
		if err != nil {
			message := fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=%s, subresource=%s)",
				info.User.GetName(), a.GetVerb(), a.GetResource(), a.GetSubresource())
			if quiet.speak(time.Now()) {
				log.Error(err, "Unable to authorise a request", "user", info.User.GetName(), "path", shown(r.URL.Path))
			}
			httperror.Text(w, http.StatusInternalServerError, message)
			return false
		}
		if decision == authorizer.DecisionAllow {
			f.admit(info.User, r)
			return true
		}
	}
	message := fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=%s, subresource(s)=%v)\n",
		info.User.GetName(), sets[0].GetVerb(), sets[0].GetResource(), subresources)
	log.V(2).Info("Refused a request", "user", info.User.GetName(), "path", shown(r.URL.Path), "subresources", subresources)
	httperror.Text(w, http.StatusForbidden, message)
	return false
}

// longestPath is how much of a path the log shows, in bytes: of who may nothing each
// request would else be a line of as much as a header may have.
const longestPath = 256

func shown(path string) string { return path[:min(len(path), longestPath)] }

// quiet lets one failure in ten seconds into the log: anybody who reaches the
// port can cause them.
type quiet struct{ until atomic.Int64 }

func (q *quiet) speak(now time.Time) bool {
	until := q.until.Load()
	return now.UnixNano() >= until && q.until.CompareAndSwap(until, now.Add(10*time.Second).UnixNano())
}
