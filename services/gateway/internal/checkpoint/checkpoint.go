// Package checkpoint serves /checkpoint: the runtime writes a container's state
// to a file of the node. It must never see that file.
package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/polylet/polylet/internal/service"
	"github.com/polylet/polylet/services/gateway/internal/httperror"
	"github.com/polylet/polylet/services/gateway/internal/route"
)

// Take has a container checkpointed and returns the path of the archive; a
// timeout of 0 leaves it to the runtime. Errors are of rpcerr's classes.
type Take func(ctx context.Context, namespace, pod, container string, timeout time.Duration) (path string, err error)

const (
	// longest bounds the timeout that a client may ask for.
	longest = 24 * time.Hour
	// unasked bounds the call when the client gives no timeout, and is added to
	// one that it gives, so that the runtime's own answer comes first.
	unasked = 10 * time.Minute
	margin  = 30 * time.Second
)

// Handler serves /checkpoint/{namespace}/{pod}/{container}.
// Source: KEP-2008, https://kubernetes.io/docs/reference/node/kubelet-checkpoint-api/.
func Handler(take Take) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timeout, err := timeoutOf(r.URL.Query()["timeout"])
		if err != nil {
			httperror.Text(w, http.StatusNotFound, err.Error())
			return
		}
		limit := unasked
		if timeout > 0 {
			limit = timeout + margin
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		path, err := take(ctx, route.Param(r, "namespace"), route.Param(r, "pod"), route.Param(r, "container"), timeout)
		if err != nil {
			httperror.Error(w, service.Podsync, err)
			return
		}
		body, err := json.Marshal(map[string][]string{"items": {path}})
		if err != nil {
			httperror.Text(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // a client that went away needs no answer
	})
}

// timeoutOf is the last of the values, in seconds; none is 0.
func timeoutOf(values []string) (time.Duration, error) {
	if len(values) == 0 {
		return 0, nil
	}
	last := values[len(values)-1]
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n < 0 || n > int64(longest/time.Second) {
		return 0, fmt.Errorf("cannot parse value of timeout parameter: %q is not a number of seconds from 0 to %d", last, longest/time.Second)
	}
	return time.Duration(n) * time.Second, nil
}
