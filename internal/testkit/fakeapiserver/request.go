package fakeapiserver

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// request is a parsed request.
type request struct {
	Request
	admin       bool
	query       url.Values
	contentType string
	proto       bool // the client wants protobuf
	body        []byte
	table       *table    // nil for reviews, which are not stored
	res         *resource // of the table
}

func (q *request) gv() schema.GroupVersion {
	return schema.GroupVersion{Group: q.Group, Version: q.Version}
}

func (q *request) gr() schema.GroupResource {
	return schema.GroupResource{Group: q.Group, Resource: q.Resource}
}

// eventsGV is the second face of events, which are stored as v1.
var eventsGV = schema.GroupVersion{Group: "events.k8s.io", Version: "v1"}

// reviews are created and answered, never stored.
var reviews = []string{"tokenreviews", "subjectaccessreviews", "selfsubjectreviews", "selfsubjectaccessreviews"}

func (s *Server) parse(hr *http.Request) (*request, error) {
	q := &request{query: hr.URL.Query(), contentType: hr.Header.Get("Content-Type")}
	q.UserAgent, q.URL = hr.UserAgent(), hr.URL.String()
	q.FieldSelector = q.query.Get("fieldSelector")
	parts := strings.Split(strings.Trim(hr.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		q.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		q.Group, q.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil, notFoundPath(hr)
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != "finalize" {
		q.Namespace, parts = parts[1], parts[2:]
	}
	q.Resource = parts[0]
	if len(parts) > 1 {
		q.Name = parts[1]
	}
	if len(parts) > 2 {
		q.Subresource = strings.Join(parts[2:], "/")
	}
	gvr := q.gv().WithResource(q.Resource)
	if q.gv() == eventsGV {
		gvr = schema.GroupVersionResource{Version: "v1", Resource: q.Resource}
	}
	q.table = s.tables[gvr]
	if q.table == nil && !slices.Contains(reviews, q.Resource) {
		return nil, notFoundPath(hr)
	}
	if q.table != nil {
		q.res = q.table.res
	}
	if err := q.setVerb(hr); err != nil {
		return nil, err
	}
	q.proto = q.wantsProto(hr)
	var err error
	if hr.Body != nil {
		q.body, err = io.ReadAll(hr.Body)
	}
	return q, err
}

func notFoundPath(hr *http.Request) error {
	err := apierrors.NewGenericServerResponse(http.StatusNotFound, hr.Method, schema.GroupResource{}, "", "", 0, true)
	err.ErrStatus.Message = "the fake apiserver has no " + hr.URL.Path
	return err
}

func (q *request) setVerb(hr *http.Request) error {
	watching := q.query.Get("watch") == "true" || q.query.Get("watch") == "1"
	switch hr.Method {
	case http.MethodGet:
		q.Verb = "get"
		if q.Name == "" {
			q.Verb = "list"
		}
		if watching {
			q.Verb = "watch"
		}
	case http.MethodPost:
		q.Verb = "create"
	case http.MethodPut:
		q.Verb = "update"
	case http.MethodPatch:
		q.Verb = "patch"
	case http.MethodDelete:
		q.Verb = "delete"
		if q.Name == "" {
			q.Verb = "deletecollection"
		}
	}
	if q.Verb == "" || q.table == nil && q.Verb != "create" {
		return apierrors.NewMethodNotSupported(q.gr(), strings.ToLower(hr.Method))
	}
	return nil
}

// selectorOf is what a list or a watch picks.
func (s *Server) selectorOf(q *request) (selector, error) {
	fs := q.FieldSelector
	if q.Name != "" {
		fs = "metadata.name=" + q.Name
	}
	return s.parseSelector(q.res, q.Namespace, q.query.Get("labelSelector"), fs)
}
