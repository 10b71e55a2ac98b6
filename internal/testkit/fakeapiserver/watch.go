package fakeapiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one watch. Its queue is guarded by Server.mu.
type watcher struct {
	// from is the version that it was begun at: nothing up to it is sent, not even where
	// the server's own has not come to it (a restore of etcd).
	from    int64
	queue   []change
	wake    chan struct{}
	dropped chan struct{} // closed by DropWatches
	isGone  bool
	admin   bool
}

func (w *watcher) push(c change) {
	if c.rv <= w.from {
		return
	}
	w.queue = append(w.queue, c)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) drop() {
	if !w.isGone {
		w.isGone = true
		close(w.dropped)
	}
}

// initialEventsEnd marks the bookmark after the initial events of a watch list.
const initialEventsEnd = "k8s.io/initial-events-end"

// openWatch registers a watcher with the events that it starts with.
func (s *Server) openWatch(q *request) (w *watcher, initial []change, end *int64, err error) {
	sendInitial := q.query.Get("sendInitialEvents")
	if sendInitial != "" && s.cfg.NoWatchList {
		return nil, nil, nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := q.table
	from := s.version
	text := q.query.Get("resourceVersion")
	listFirst := sendInitial == "true" || sendInitial == "" && (text == "" || text == "0")
	if text != "" && text != "0" {
		if from, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, nil, nil, apierrors.NewBadRequest("invalid resource version " + strconv.Quote(text))
		}
	}
	switch {
	case listFirst:
		for _, k := range t.keys() {
			initial = append(initial, change{kind: watch.Added, now: t.objects[k]})
		}
		if sendInitial == "true" {
			at := s.version
			end = &at
		}
	case from < t.compacted:
		return nil, nil, nil, errExpired(from, t.compacted)
	default:
		for _, c := range t.changes {
			if c.rv > from {
				initial = append(initial, c)
			}
		}
	}
	if listFirst {
		from = 0
	}
	w = &watcher{from: from, wake: make(chan struct{}, 1), dropped: make(chan struct{}), admin: q.admin}
	t.watchers[w] = struct{}{}
	return w, initial, end, nil
}

func errExpired(from, compacted int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, compacted))
}

// stream is the answer to one watch.
type stream struct {
	s    *Server
	ctx  context.Context
	w    *recorder
	q    *request
	f    Fault
	sel  selector
	sent int
}

func (s *Server) serveWatch(ctx context.Context, w *recorder, q *request, f Fault) {
	sel, err := s.selectorOf(q)
	if err != nil {
		writeError(w, err)
		return
	}
	watching, initial, end, err := s.openWatch(q)
	if f.Expire {
		err = errExpired(0, s.currentVersion())
	}
	if watching != nil {
		defer s.closeWatch(q.table, watching)
	}
	expired := apierrors.IsResourceExpired(err)
	if err != nil && !expired {
		writeError(w, err)
		return
	}
	kind := runtime.ContentTypeJSON
	if q.proto {
		kind = runtime.ContentTypeProtobuf + ";stream=watch"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	w.flush()
	st := &stream{s: s, ctx: ctx, w: w, q: q, f: f, sel: sel}
	if expired {
		st.sendError(err)
		return
	}
	for _, c := range initial {
		st.send(c)
	}
	if end != nil {
		st.bookmark(*end, true)
	}
	st.follow(watching)
}

func (s *Server) closeWatch(t *table, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(t.watchers, w)
}

func (s *Server) currentVersion() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// follow sends changes until the client, the time or a fault ends the watch.
func (st *stream) follow(w *watcher) {
	limit := 45 * time.Minute
	if sec, err := strconv.Atoi(st.q.query.Get("timeoutSeconds")); err == nil && sec > 0 {
		limit = time.Duration(sec) * time.Second
	}
	end := time.NewTimer(limit)
	defer end.Stop()
	var cut <-chan time.Time
	if st.f.CutAfter > 0 {
		t := time.NewTimer(st.f.CutAfter)
		defer t.Stop()
		cut = t.C
	}
	marks := time.NewTicker(st.s.cfg.BookmarkEvery)
	defer marks.Stop()
	for {
		select {
		case <-w.wake:
			st.s.mu.Lock()
			batch := w.queue
			w.queue = nil
			st.s.mu.Unlock()
			for _, c := range batch {
				st.send(c)
			}
		case <-marks.C:
			if rv, ok := st.upToDate(w); ok && st.q.query.Get("allowWatchBookmarks") == "true" {
				st.bookmark(rv, false)
			}
		case <-end.C:
			return
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-w.dropped:
			panic(http.ErrAbortHandler)
		case <-st.ctx.Done():
			return
		}
	}
}

// upToDate returns the current version if no changes wait: a bookmark must not overtake
// them.
func (st *stream) upToDate(w *watcher) (int64, bool) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.s.version, len(w.queue) == 0 && st.s.version >= w.from
}

// send turns a change into what the selector makes of it.
func (st *stream) send(c change) {
	is := st.sel.matches(c.now.obj)
	was := c.old != nil && st.sel.matches(c.old.obj)
	kind := c.kind
	switch {
	case kind == watch.Deleted:
		if !was {
			return
		}
	case is && !was:
		kind = watch.Added
	case !is && was:
		kind = watch.Deleted
	case !is:
		return
	}
	st.frame(kind, st.q.present(c.now).data)
	st.sent++
	if st.f.CutAfterEvents > 0 && st.sent >= st.f.CutAfterEvents {
		panic(http.ErrAbortHandler)
	}
}

func (st *stream) frame(kind watch.EventType, object []byte) {
	sleep(st.ctx, st.f.EventDelay)
	if !st.q.admin {
		st.s.gate(st.ctx)
	}
	if _, err := st.w.Write(st.q.frame(string(kind), object)); err != nil {
		panic(http.ErrAbortHandler)
	}
	st.w.flush()
}

func (st *stream) bookmark(rv int64, initial bool) {
	if st.q.proto {
		mark := st.q.res.newObject()
		metaOf(mark).SetResourceVersion(strconv.FormatInt(rv, 10))
		if initial {
			metaOf(mark).SetAnnotations(map[string]string{initialEventsEnd: "true"})
		}
		st.frame(watch.Bookmark, envelope(st.q.res.gvk, message(mark)))
		return
	}
	annotations := ""
	if initial {
		annotations = `,"annotations":{"` + initialEventsEnd + `":"true"}`
	}
	gvk := st.q.res.gvk
	st.frame(watch.Bookmark, fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}`,
		gvk.Kind, st.q.gv().String(), rv, annotations))
}

func (st *stream) sendError(err error) {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	body := api.Status()
	body.Kind, body.APIVersion = "Status", "v1"
	if st.q.proto {
		st.frame(watch.Error, envelope(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, message(&body)))
		return
	}
	st.frame(watch.Error, raw(body))
}
