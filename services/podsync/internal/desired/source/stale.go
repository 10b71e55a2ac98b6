package source

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Stale is why a static pod goes on with what its manifest said before.
type Stale struct {
	// Err names the manifest and what is wrong with it.
	Err error
	// Since it was found wrong.
	Since time.Time
}

// stale keeps it by source and pod. Safe for concurrent use.
type stale struct {
	mu   sync.Mutex
	pods map[string]map[types.UID]Stale
}

func (s *stale) set(src string, pods map[types.UID]Stale) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods == nil {
		s.pods = map[string]map[types.UID]Stale{}
	}
	s.pods[src] = pods
}

// Stale returns why the pod is not what its manifest says now; false when it is.
func (s *Sources) Stale(uid types.UID) (Stale, bool) {
	s.stale.mu.Lock()
	defer s.stale.mu.Unlock()
	for _, pods := range s.stale.pods {
		if why, ok := pods[uid]; ok {
			return why, true
		}
	}
	return Stale{}, false
}
