package growth

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// TestThatAVolumeCannotBeGrownIsSaidAgain: when it fails otherwise, after each hour, and when it
// has ended.
func TestThatAVolumeCannotBeGrownIsSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		v := w.volume("p")
		if err := w.AtMount(klog.NewContext(t.Context(), log), v, w.claim.DeepCopy(), w.pv.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		w.set(&Error{Away, errors.New("the driver is away")})
		w.larger("2Gi", v1.PersistentVolumeClaimNodeResizePending)
		time.Sleep(10 * time.Minute)
		w.set(&Error{Uncertain, errors.New("the disk is busy")})
		time.Sleep(2*time.Hour + 30*time.Minute)
		w.set(nil)
		time.Sleep(10 * time.Minute)
		w.Leave(v.Pod.UID)
		synctest.Wait()
		all := strings.Join(lines, "\n")
		if strings.Count(all, `"err"="the driver is away"`) != 1 || strings.Count(all, `"err"="the disk is busy"`) != 3 || strings.Count(all, "has grown") != 1 || len(lines) != 5 {
			t.Errorf("it says:\n%s", all)
		}
	})
}
