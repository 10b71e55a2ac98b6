package volume

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// mostOfPod is how many bytes the files of all content volumes of a pod may have, each
// file counted as a page at least, and a directory as one: secrets and tokens lie in memory that no limit of
// the pod counts and nothing takes back but the pod's end, and a spec of 1.5 MiB names
// five thousand volumes. What is being made counts, too: many are made at once, and
// their files are held until they are written.
const (
	mostOfPod = 64 << 20
	page      = 4 << 10
)

// shares are the bytes of a pod's content volumes, by volume: of those that are
// written, and of those that are being made, which count instead. all is the sum.
type shares struct {
	written, making map[string]int
	all             int
}

func newShares() shares { return shares{written: map[string]int{}, making: map[string]int{}} }

// begin says that a volume is made anew.
func (s *Set) begin(uid types.UID, volume string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := &s.pods[uid].shares
	before, again := sh.making[volume]
	if !again {
		before = sh.written[volume]
	}
	sh.all -= before
	sh.making[volume] = 0
}

// grow counts what is added to a volume that is being made, before it is; an error
// when it is too much.
func (s *Set) grow(uid types.UID, volume string, bytes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := &s.pods[uid].shares
	if sh.all+bytes > mostOfPod {
		return podstate.VolumeAsSaid.Wrap(fmt.Errorf("the files of the pod's configMap, secret, downwardAPI and projected volumes, and their directories, take more than %d MiB together; name fewer items, or spread them over several pods", mostOfPod>>20))
	}
	sh.all += bytes
	sh.making[volume] += bytes
	return nil
}

// end says whether the volume that was being made is written; else what was there
// before still is.
func (s *Set) end(uid types.UID, volume string, written bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := &s.pods[uid].shares
	size := sh.making[volume]
	delete(sh.making, volume)
	if written {
		sh.written[volume] = size
		return
	}
	sh.all += sh.written[volume] - size
}
