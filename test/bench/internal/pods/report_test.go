package pods

import (
	"strings"
	"testing"
	"time"

	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
)

func TestABurstReportsHalfAndAll(t *testing.T) {
	began := time.Unix(100, 0)
	ends := map[string]stage.Moments{}
	starts := map[string]time.Time{}
	for n, name := range []string{"a", "b", "c", "d"} {
		starts[name] = began
		ends[name] = stage.Moments{Ready: began.Add(time.Duration(n+1) * time.Second)}
	}
	r := report.New()
	addPods(r.Column("x"), "up", starts, began, ends, func(m stage.Moments) time.Time { return m.Ready })
	text := table(Settings{}, r, began)
	for _, want := range []string{"| up, ms | 2000 / 4000 / 4000 |", "| up, half of them, ms | 2000 /", "| up, all of them, ms | 4000 /"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
