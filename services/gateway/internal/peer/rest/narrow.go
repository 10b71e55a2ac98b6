package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/polylet/polylet/services/gateway/internal/document"
)

// formBytes bounds a form that comes as a body.
const formBytes = 64 << 10

// narrow makes the request that the mapping sees: method, path and, of the
// query, what the kubelet takes. grpc-gateway by itself passes on
// Authorization, Host and the caller's address as metadata and takes deadlines
// from Grpc-Timeout, whatever its header matcher says, and it reads a body to
// its end; so there is none of these. kept is what we have of /pods, which is
// asked for only if it has changed; nil if nothing. path is the request's without a slash
// at its end, which changes nothing. An error is the query's.
func narrow(ctx context.Context, w http.ResponseWriter, r *http.Request, path string, kept *document.Kept) (*http.Request, error) {
	method := http.MethodGet
	if r.Method == http.MethodPost {
		method = http.MethodPost
	}
	form := url.Values{}
	if path == "/stats/summary" {
		r.Body = http.MaxBytesReader(w, r.Body, formBytes)
		if err := r.ParseForm(); err != nil {
			return nil, err
		}
		const name, yes = "only_cpu_and_memory", "true"
		if values := r.Form[name]; len(values) == 1 && values[0] == yes {
			form.Set(name, yes)
		}
	}
	if kept != nil {
		form.Set("known_epoch", strconv.FormatUint(kept.Epoch, 10))
		form.Set("known_revision", strconv.FormatUint(kept.Revision, 10))
	}
	call := &http.Request{
		Method: method, URL: &url.URL{Path: path},
		Proto: r.Proto, ProtoMajor: r.ProtoMajor, ProtoMinor: r.ProtoMinor,
		Header: http.Header{}, Body: http.NoBody,
		// Already parsed, as far as ParseForm can see.
		Form: form, PostForm: url.Values{},
	}
	return call.WithContext(ctx), nil
}
