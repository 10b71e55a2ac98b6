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
}

type digest = [sha256.Size]byte

// Write writes pods, each a v1.Pod in Kubernetes' protobuf encoding, to w as
// the JSON of a v1.PodList, one after the other. It returns how much it wrote;
// when that is nothing, err is not w's.
func (p *PodList) Write(w io.Writer, pods [][]byte) (written int64, err error) {
	known := p.last()
	now, kept := make(map[digest][]byte, len(pods)), 0
	write := func(b ...[]byte) {
		for _, part := range b {
			if err == nil {
				var n int
				n, err = w.Write(part)
				written += int64(n)
			}
		}
	}
	before := []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`)
	for i, raw := range pods {
		key := sha256.Sum256(raw)
		item, ok := known[key]
		if !ok {
			if item, err = podJSON(raw); err != nil {
				return written, fmt.Errorf("pod %d of %d that podsync sent: %w", i+1, len(pods), err)
			}
		}
		if kept += len(item); kept <= keptBytes {
			now[key] = item
		}
		if write(before, item); err != nil {
			return written, fmt.Errorf("writing pod %d of %d: %w", i+1, len(pods), err)
		}
		before = []byte{','}
	}
	p.keep(now)
	if len(pods) > 0 {
		before = nil
	}
	write(before, []byte("]}"))
	return written, err
}

func (p *PodList) last() map[digest][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known
}

func (p *PodList) keep(known map[digest][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known = known
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
