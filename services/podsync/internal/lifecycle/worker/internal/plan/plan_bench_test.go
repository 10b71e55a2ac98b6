package plan

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// BenchmarkPlan plans for a pod all of whose containers run, for one that is to pull and
// start them, and for one all of whose containers have crashed.
func BenchmarkPlan(b *testing.B) {
	for _, containers := range []int{1, 10, 400} {
		var names []string
		for i := range containers {
			names = append(names, fmt.Sprint("container", i))
		}
		for _, state := range []string{"running", "absent", "1"} {
			s := sceneOf(testPod(v1.RestartPolicyAlways, names...), state)
			s.Now = s.Now.Add(time.Minute)
			out := Plan(s)
			s.Reported, s.Waits = out.Status, out.Waits
			b.Run(fmt.Sprintf("%s/%d", state, containers), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Plan(s)
				}
			})
		}
	}
}
