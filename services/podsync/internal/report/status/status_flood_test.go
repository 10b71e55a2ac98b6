package status

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestARefusalIsLoggedOnceForEachPodHoweverOftenItIsTried(t *testing.T) {
	for _, code := range []int{401, 403} {
		synctest.Test(t, func(t *testing.T) {
			const pods = 20
			b := &bench{T: t, api: fakeapiserver.New(fakeapiserver.Config{Faults: func(q fakeapiserver.Request) fakeapiserver.Fault {
				if q.Verb == "patch" {
					return fakeapiserver.Fault{Status: code}
				}
				return fakeapiserver.Fault{}
			}})}
			defer b.api.Close()
			b.w = New(Config{}, Deps{Client: b.api.Client()})
			var lines atomic.Int32
			log := funcr.New(func(_, line string) {
				if strings.Contains(line, "Status refused") {
					lines.Add(1)
				}
			}, funcr.Options{})
			ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), log))
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = b.w.Run(ctx)
			}()
			defer func() { cancel(); <-done }()
			for i := range pods {
				b.w.Set(b.create(fmt.Sprintf("p%d", i)), v1.PodStatus{Phase: v1.PodRunning})
			}
			time.Sleep(10 * time.Minute)
			if b.patches() < 10*pods {
				t.Errorf("%d: tried %d times in ten minutes", code, b.patches())
			}
			if n := int(lines.Load()); n != pods {
				t.Errorf("%d: %d lines in ten minutes for %d pods, want one for each", code, n, pods)
			}
		})
	}
}
