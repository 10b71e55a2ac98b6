package status

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/steps"
)

func TestAStatusWithManyConditionsOfOthersIsComparedByOneLookAtEach(t *testing.T) {
	steps.Grow(t, func(n int) {
		var st, known v1.PodStatus
		for i := range n {
			c := v1.PodCondition{Type: v1.PodConditionType(fmt.Sprint("example.com/", i)), Status: v1.ConditionTrue}
			known.Conditions = append(known.Conditions, c)
			c.Status = v1.ConditionFalse
			st.Conditions = append(st.Conditions, c)
		}
		desired := normalize(st, known)
		stamp(&desired, known, time.Now())
		if len(desired.Conditions) != n || same(desired, known) || !same(desired, desired) || len(withOthers(desired.Conditions, known.Conditions)) != n {
			t.Fatalf("%d of %d conditions", len(desired.Conditions), n)
		}
	})
}
