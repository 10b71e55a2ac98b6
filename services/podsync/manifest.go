package podsync

import (
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/desired/source"
)

// CheckManifest makes of a static pod's manifest what a node of this name would
// run, defaults included, without running it: for people who want to know
// before they put the file in place. ignored says what of the text does not
// count; the error names each field that is wrong, with its mend.
func CheckManifest(nodeName, path string, data []byte) (pod *v1.Pod, ignored string, err error) {
	return source.Check(nodeName, path, data)
}
