// Package document writes the documents of the node API: pods, configuration
// and health. Their shapes are Kubernetes' own; what they say comes as bytes
// from the service that owns it. It must never compute what a document says.
package document

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// keptBytes bounds the JSON that a PodList keeps for the next request.
const keptBytes = 1 << 20

// PodList writes v1.PodLists. Pods that have not changed since the last one
// are not decoded again, as far as their JSON was small enough to be kept. The
// zero value is ready; safe for concurrent use.
type PodList struct {
	mu sync.Mutex
	// known maps the digest of a pod's protobuf to its JSON, for the pods of
	// the last list.
	known map[digest][]byte
	// last is the last list that is known whole; nil if there is none.
	last *Kept
}

type digest = [sha256.Size]byte

// Version is that of a list, as podsync counts them. The zero one says nothing.
type Version struct{ Epoch, Revision uint64 }

// Kept is a list that can be written again while it is what podsync has. It does
// not change.
type Kept struct {
	Version
	items [][]byte
}

// Kept returns the last list, if all of it and its version are known; else nil.
func (p *PodList) Kept() *Kept {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Write writes pods, each a v1.Pod in Kubernetes' protobuf encoding, to w as
// the JSON of a v1.PodList, one after the other. It returns how much it wrote;
// when that is nothing, err is not w's. version is that of the pods, zero when
// podsync told none.
func (p *PodList) Write(w io.Writer, pods [][]byte, version Version) (written int64, err error) {
	known := p.jsonOf()
	now, kept, items := make(map[digest][]byte, len(pods)), 0, make([][]byte, 0, len(pods))
	out := &listWriter{w: w}
	for i, raw := range pods {
		key := sha256.Sum256(raw)
		item, ok := known[key]
		if !ok {
			if item, err = podJSON(raw); err != nil {
				return out.written, fmt.Errorf("pod %d of %d that podsync sent: %w", i+1, len(pods), err)
			}
		}
		if kept += len(item); kept <= keptBytes {
			now[key], items = item, append(items, item)
		}
		if out.item(item); out.err != nil {
			return out.written, fmt.Errorf("writing pod %d of %d: %w", i+1, len(pods), out.err)
		}
	}
	p.keep(now, items, len(pods), version)
	out.end()
	return out.written, out.err
}

// Write writes the list once more.
func (k *Kept) Write(w io.Writer) (written int64, err error) {
	out := &listWriter{w: w}
	for _, item := range k.items {
		out.item(item)
	}
	out.end()
	return out.written, out.err
}

// listWriter writes items and what is around them, until the first error.
type listWriter struct {
	w       io.Writer
	begun   bool
	written int64
	err     error
}

func (l *listWriter) item(item []byte) {
	before := ","
	if !l.begun {
		before = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`
	}
	l.begun = true
	l.write([]byte(before))
	l.write(item)
}

func (l *listWriter) end() {
	if !l.begun {
		l.write([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`))
		return
	}
	l.write([]byte("]}"))
}

func (l *listWriter) write(b []byte) {
	if l.err == nil {
		var n int
		n, l.err = l.w.Write(b)
		l.written += int64(n)
	}
}

func (p *PodList) jsonOf() map[digest][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

func (p *PodList) keep(known map[digest][]byte, items [][]byte, pods int, version Version) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.last = known, nil
	if len(items) == pods && version != (Version{}) {
		p.last = &Kept{Version: version, items: items}
	}
}

func podJSON(raw []byte) ([]byte, error) {
	var pod v1.Pod
	if err := pod.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("decoding a v1.Pod: %w", err)
	}
	item, err := json.Marshal(&pod)
	if err != nil {
		return nil, fmt.Errorf("encoding pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return item, nil
}
