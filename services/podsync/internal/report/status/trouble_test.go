package status

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestAStatusThatIsNotWrittenSaysWhyAndSinceWhen(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		away   bool
	}{"refused": {403, false}, "away": {503, true}} {
		synctest.Test(t, func(t *testing.T) {
			var broken atomic.Bool // asked in the apiserver's goroutine
			broken.Store(true)
			b := start(t, fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
				if broken.Load() && q.Verb == "patch" {
					return fakeapiserver.Fault{Status: c.status}
				}
				return fakeapiserver.Fault{}
			}}, nil)
			var mu sync.Mutex
			var told []string
			b.w.deps.OnRefused = func(_ types.UID, err error) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, err.Error())
			}
			pod := b.create("p")
			if _, ok := b.w.Trouble(pod.UID); ok {
				t.Errorf("%s: trouble before the first request", name)
			}
			began := time.Now()
			b.w.Set(pod, v1.PodStatus{Phase: v1.PodRunning})
			time.Sleep(time.Minute)
			trouble, ok := b.w.Trouble(pod.UID)
			if !ok || trouble.Away != c.away || trouble.Since.Sub(began) > time.Second || !trouble.Retry.After(began.Add(30*time.Second)) || trouble.Err == nil {
				t.Errorf("%s: %+v %v", name, trouble, ok)
			}
			synctest.Wait()
			mu.Lock()
			once := len(told) == 1 && strings.Contains(told[0], trouble.Err.Error())
			mu.Unlock()
			if !once {
				t.Errorf("%s: not told once of %v", name, trouble.Err)
			}
			broken.Store(false)
			time.Sleep(time.Minute)
			if trouble, ok := b.w.Trouble(pod.UID); ok {
				t.Errorf("%s: trouble after it was written: %+v", name, trouble)
			}
		})
	}
}
