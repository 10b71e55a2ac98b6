package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// fetchTimeout bounds one request, the body included.
// Source: KubeletConfiguration.staticPodURL; a kubelet 1.36 waits as long.
const fetchTimeout = 10 * time.Second

// web follows the static pod URL.
type web struct {
	feed    *feed
	decoder *decoder
	client  *http.Client
	// shown is the URL without a password.
	shown string
	// known holds the pods of the last answer by name, entries in its order.
	known   map[types.NamespacedName]*entry
	entries []*entry
	// last is the last answer that was taken in.
	last []byte
	// heard is true once an answer could be read.
	heard bool
	// problem is the failure that was last logged.
	problem string
}

// runHTTP asks the URL again and again. A server that is away takes no pod
// away: its last answer stands.
func (s *Sources) runHTTP(ctx context.Context, sink Sink, filesRead <-chan struct{}) error {
	decoder, err := newDecoder()
	if err != nil {
		return err
	}
	w := &web{
		feed: s.newFeed(sink, HTTP, "static pod URL"), decoder: decoder, shown: redacted(s.cfg.StaticPodURL),
		client: &http.Client{Transport: s.deps.Transport, Timeout: fetchTimeout, CheckRedirect: sameServer},
		known:  map[types.NamespacedName]*entry{},
	}
	select { // a name that is in a file too is the file's, after every start
	case <-filesRead:
	case <-ctx.Done():
		return nil
	}
	log := klog.FromContext(ctx)
	again := time.NewTicker(s.cfg.HTTPCheckFrequency)
	defer again.Stop()
	for ready := false; ; {
		if w.read(ctx) && !ready {
			ready = true
			s.staticReady()
			sink.Ready(HTTP)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case <-s.owners.freed[HTTP]:
			w.feed.publish(log, w.entries)
			if w.problem != "" {
				s.deps.Health.Set(w.feed.health, false, w.problem)
			}
		}
	}
}

// sameServer follows a redirect only to where it came from: the headers that
// go along are secrets of that server.
func sameServer(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
		return fmt.Errorf("it redirects to %s, another server, which must not see staticPodURLHeader; set staticPodURL to that address if it is meant", redacted(req.URL.String()))
	}
	if len(via) >= 10 {
		return errors.New("it redirects more than ten times")
	}
	return nil
}

func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(not a URL)"
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return u.Redacted()
}

// read takes in what the URL answers now, and says whether it did answer.
func (w *web) read(ctx context.Context) bool {
	log := klog.FromContext(ctx).WithValues("url", w.shown)
	data, err := w.fetch(ctx)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		w.fail(log, err, "the pods of its last answer go on; it is asked again by itself")
		return false
	}
	if len(bytes.TrimSpace(data)) == 0 {
		// An answer without content asks for no pods, as it does of the kubelet.
		if len(w.entries) > 0 {
			w.last, w.entries, w.known = nil, nil, map[types.NamespacedName]*entry{}
			w.feed.publish(log, nil)
		}
		w.fail(log, errors.New("its answer is empty; serve a Pod or a PodList"), "it asks for no pods")
		w.heard = true
		w.feed.doubt(log, false)
		return true
	}
	if bytes.Equal(data, w.last) && w.problem == "" {
		return true
	}
	list, err := w.decoder.decodeAll(data)
	if err != nil {
		w.fail(log, err, "the pods of its last good answer go on")
		w.feed.doubt(log, !w.heard)
		return true
	}
	w.last, w.problem, w.heard = data, "", true
	w.takeIn(log, list)
	w.feed.publish(log, w.entries)
	return true
}

// fail tells of a failure once.
func (w *web) fail(log klog.Logger, err error, consequence string) {
	err = fmt.Errorf("static pod URL %s: %w", w.shown, err)
	w.feed.sources.deps.Health.Set(w.feed.health, false, err.Error())
	if w.problem == err.Error() {
		return
	}
	w.problem = err.Error()
	log.Error(err, "Static pods cannot be taken from the URL", "consequence", consequence)
	w.feed.sources.deps.Events.Node(v1.EventTypeWarning, "FailedValidation", err.Error()+"; "+consequence)
}

func (w *web) fetch(ctx context.Context) ([]byte, error) {
	cfg := w.feed.sources.cfg
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.StaticPodURL, nil)
	if err != nil {
		return nil, errors.New("it is not a URL that can be asked; correct staticPodURL")
	}
	for name, values := range cfg.StaticPodURLHeader {
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := w.client.Do(req)
	if err != nil {
		if inner := new(url.Error); errors.As(err, &inner) { // it would repeat the URL, with its query
			err = inner.Err
		}
		return nil, fmt.Errorf("ask it: %w; check that it is reachable from this node", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s, not 200; check the URL and staticPodURLHeader", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, cfg.MaxManifestBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if int64(len(data)) > cfg.MaxManifestBytes {
		return nil, fmt.Errorf("its answer is larger than %d bytes; it must be smaller", cfg.MaxManifestBytes)
	}
	return data, nil
}

// takeIn makes entries of the elements of an answer. A broken element keeps
// the pod of its name that was good before; one without a name may be any of those
// that are no longer there, and keeps them all.
func (w *web) takeIn(log klog.Logger, list []element) {
	known, unnamed := map[types.NamespacedName]*entry{}, false
	w.entries = nil
	for i, el := range list {
		e := &entry{where: w.shown}
		if len(list) > 1 {
			e.where = fmt.Sprintf("%s, item %d", w.shown, i)
		}
		name := el.name
		unnamed = unnamed || el.err != nil && name.Name == ""
		if old := w.known[name]; old != nil && name.Name != "" && known[name] == nil {
			e.pod, e.err, e.data = old.pod, old.err, old.data
		}
		if e.data == nil || !bytes.Equal(e.data, el.data) {
			e.data = el.data
			pod, err := el.pod, el.err
			if err == nil {
				err = finish(pod, origin{node: w.feed.sources.cfg.NodeName, src: HTTP, path: w.feed.sources.cfg.StaticPodURL, seen: time.Now(), mayRefer: w.feed.sources.cfg.AllowAPIReferences})
			}
			if el.unknown != "" {
				log.Info("Static pod has fields that no pod has, they are ignored; check their spelling and indentation", "where", e.where, "problem", el.unknown)
			}
			w.feed.take(log, e, pod, err)
		}
		if name.Name != "" && known[name] == nil {
			known[name] = e
		}
		w.entries = append(w.entries, e)
	}
	for name, old := range w.known {
		if unnamed && old.pod != nil && known[name] == nil {
			known[name] = old
			w.entries = append(w.entries, old)
		}
	}
	w.known = known
}
