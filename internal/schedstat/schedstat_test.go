package schedstat

import (
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestTheKernelTellsHowLongThreadsRunAndWaitForAProcessor(t *testing.T) {
	before := Self()
	var done atomic.Bool
	defer done.Store(true)
	for range 4 * runtime.NumCPU() {
		go func() {
			runtime.LockOSThread() // and so a thread for each, more than there are processors
			for !done.Load() {
			}
		}()
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * runtime.NumCPU()))
	enough := func() bool {
		now, known := OfProcess(os.Getpid())
		since := now.Since(before)
		return known && since.Waited >= 100*time.Millisecond && since.Ran >= 100*time.Millisecond
	}
	for deadline := time.Now().Add(time.Minute); !enough(); {
		if time.Now().After(deadline) {
			t.Fatalf("threads that take each other's processors: %+v", Self().Since(before))
		}
		runtime.Gosched()
	}
}

func TestOfAProcessThatIsNotThereNothingIsKnown(t *testing.T) {
	if times, known := OfProcess(1 << 30); known {
		t.Errorf("%+v", times)
	}
}

func TestACgroupTellsHowLongItsProcessesRanAndWaited(t *testing.T) {
	dir := t.TempDir()
	if times, known := OfCgroup(dir); known {
		t.Errorf("of none: %+v", times)
	}
	for name, text := range map[string]string{
		"cpu.stat":     "usage_usec 4000000\nuser_usec 3000000\nsystem_usec 1000000\nnr_periods 0\n",
		"cpu.pressure": "some avg10=1.00 avg60=2.00 avg300=3.00 total=9000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if times, known := OfCgroup(dir); !known || times != (Times{Ran: 4 * time.Second, Waited: 9 * time.Second}) {
		t.Errorf("%+v, known %v", times, known)
	}
}

func TestACountThatHasBegunAnewIsNotLessThanNothing(t *testing.T) {
	got := Times{Ran: time.Second, Waited: 5 * time.Second}.Since(Times{Ran: time.Minute, Waited: 2 * time.Second})
	if got != (Times{Ran: time.Second, Waited: 3 * time.Second}) {
		t.Errorf("%+v", got)
	}
}
