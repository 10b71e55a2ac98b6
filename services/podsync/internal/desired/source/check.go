package source

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Check makes of a manifest file's text what a node of this name would run,
// without running it. ignored says what of the text does not count; empty for
// nothing. The error names each field that is wrong, with its mend.
func Check(nodeName, path string, data []byte) (pod *v1.Pod, ignored string, err error) {
	decoder, err := newDecoder()
	if err != nil {
		return nil, "", err
	}
	if pod, ignored, err = decoder.decode(data); err != nil {
		return nil, "", err
	}
	return pod, ignored, finish(pod, origin{node: nodeName, src: File, path: path, seen: time.Now()})
}
