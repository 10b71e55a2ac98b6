package logs

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	undecodable = "Unable to decode query."
	invalid     = "Invalid request."
)

// parse reads PodLogOptions from a query; a status other than 0 says that it is
// bad. Only the first value of a repeated parameter counts.
// streams says whether another stream than All may be asked for.
// Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (log), KEP-3288.
func parse(query url.Values, streams bool) (*v1.PodLogOptions, int, string) {
	o := &v1.PodLogOptions{
		Follow:                       truth(query, "follow"),
		Previous:                     truth(query, "previous"),
		Timestamps:                   truth(query, "timestamps"),
		InsecureSkipTLSVerifyBackend: truth(query, "insecureSkipTLSVerifyBackend"),
	}
	// tail is what clients sent before tailLines was.
	if tail := query.Get("tail"); query.Has("tail") {
		query.Set("tailLines", tail)
		if tail == "all" {
			query.Del("tailLines")
		}
	}
	var ok [4]bool
	o.SinceSeconds, ok[0] = number(query, "sinceSeconds")
	o.TailLines, ok[1] = number(query, "tailLines")
	o.LimitBytes, ok[2] = number(query, "limitBytes")
	o.SinceTime, ok[3] = moment(query, "sinceTime")
	for _, fine := range ok {
		if !fine {
			return nil, http.StatusBadRequest, undecodable
		}
	}
	if stream := query.Get("stream"); stream != "" {
		o.Stream = &stream
	}
	if !sound(o) {
		return nil, http.StatusUnprocessableEntity, invalid
	}
	if o.Stream != nil && *o.Stream != v1.LogStreamAll && !streams {
		return nil, http.StatusBadRequest, "unable to return the given log stream: " + strconv.Quote(*o.Stream) + ". Please enable PodLogsQuerySplitStreams feature gate in kubelet"
	}
	return o, 0, ""
}

func sound(o *v1.PodLogOptions) bool {
	switch {
	case o.Stream != nil && !slices.Contains([]string{v1.LogStreamAll, v1.LogStreamStdout, v1.LogStreamStderr}, *o.Stream):
		return false
	case o.Stream != nil && *o.Stream != v1.LogStreamAll && o.TailLines != nil:
		// The lines of one stream cannot be counted from the end.
		return false
	case o.SinceSeconds != nil && (o.SinceTime != nil || *o.SinceSeconds < 1):
		return false
	case o.TailLines != nil && *o.TailLines < 0:
		return false
	case o.LimitBytes != nil && *o.LimitBytes < 1:
		return false
	}
	return true
}

// truth reads a switch as Kubernetes' parameters are read: present and neither
// "false" nor "0" is true.
func truth(query url.Values, name string) bool {
	values := query[name]
	return len(values) > 0 && values[0] != "0" && !strings.EqualFold(values[0], "false")
}

func number(query url.Values, name string) (*int64, bool) {
	text := query.Get(name)
	if text == "" {
		return nil, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return &n, err == nil
}

func moment(query url.Values, name string) (*metav1.Time, bool) {
	text := query.Get(name)
	if text == "" {
		return nil, true
	}
	t, err := time.Parse(time.RFC3339, text)
	return &metav1.Time{Time: t}, err == nil
}
