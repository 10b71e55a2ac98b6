package volume

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestOfAVolumeThatIsNotUpToDateAPodsOwnerHearsSeldomAndOfWhatIsNewSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &events{}
		s, pod := NewStale(told), podWith()
		fail := func(volume, why string, after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			s.Failed(pod, volume, "", errors.New(why), time.Time{})
			if n := len(told.all()); n != want {
				t.Errorf("%s after %v: %d events, want %d", why, after, n, want)
			}
		}
		fail("v", "sealed", 0, 1)
		fail("v", "sealed", time.Second, 1)
		fail("v", "gone", time.Second, 1)
		fail("v", "gone", 10*time.Second, 2)
		fail("v", "gone", time.Minute, 2)
		fail("v", "gone", time.Minute, 3)
		fail("w", "gone", 0, 4)
		if all := s.Of(pod.UID); len(all) != 2 || all[0].Volume != "v" || time.Since(all[0].Since) != 2*time.Minute+12*time.Second || all[1].Volume != "w" {
			t.Errorf("not up to date are %+v", all)
		}
		s.Good(pod.UID, "v")
		fail("v", "gone", 0, 5) // it was good meanwhile
		s.Forget(pod.UID)
		if all := s.Of(pod.UID); len(all) != 0 || len(s.of) != 0 {
			t.Errorf("kept of a pod that is gone: %+v", all)
		}
	})
}

func TestWhereNothingIsKeptOfVolumesNobodyIsTold(t *testing.T) {
	var s *Stale
	s.Failed(podWith(), "v", "", errors.New("gone"), time.Time{})
	s.Good("uid-1", "v")
	s.Forget("uid-1")
	if all := s.Of("uid-1"); all != nil {
		t.Errorf("%+v", all)
	}
}
