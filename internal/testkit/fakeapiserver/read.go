package fakeapiserver

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// do carries a request other than a watch out.
func (s *Server) do(q *request) (code int, body any, err error) {
	if q.table == nil {
		return s.review(q)
	}
	switch q.Verb {
	case "get":
		return s.get(q)
	case "list":
		return s.list(q)
	case "create":
		return s.create(q)
	case "update":
		return s.update(q)
	case "patch":
		return s.patch(q)
	case "delete":
		return s.delete(q)
	default:
		return s.deleteCollection(q)
	}
}

func (s *Server) get(q *request) (int, any, error) {
	if q.Subresource != "" && q.Subresource != "status" {
		return 0, nil, apierrors.NewMethodNotSupported(q.gr(), "get "+q.Subresource)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.findLocked(q)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, q.present(e), nil
}

// findLocked returns the stored object that the request names.
func (s *Server) findLocked(q *request) (*entry, error) {
	e := q.table.objects[key(q.Namespace, q.Name)]
	if e == nil {
		return nil, apierrors.NewNotFound(q.gr(), q.Name)
	}
	return e, nil
}

func (s *Server) list(q *request) (int, any, error) {
	sel, err := s.selectorOf(q)
	if err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkListVersion(q); err != nil {
		return 0, nil, err
	}
	var found []*entry
	for _, k := range q.table.keys() {
		if e := q.table.objects[k]; sel.matches(e.obj) {
			found = append(found, e)
		}
	}
	return http.StatusOK, q.presentList(found, s.version), nil
}

// checkListVersion refuses versions that are compacted or still to come.
func (s *Server) checkListVersion(q *request) error {
	text := q.query.Get("resourceVersion")
	if text == "" || text == "0" {
		return nil
	}
	rv, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return apierrors.NewBadRequest("invalid resource version " + strconv.Quote(text))
	}
	if rv > s.version {
		return apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rv, s.version), 1)
	}
	if q.query.Get("resourceVersionMatch") == "Exact" && rv != s.version {
		return errExpired(rv, s.version)
	}
	return nil
}
