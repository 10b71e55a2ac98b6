package main

import (
	"strings"
	"testing"
	"time"
)

func TestQuantilesAreValuesOfTheSample(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{ten, 0.5, 5}, {ten, 0.9, 9}, {ten, 1, 10}, {[]float64{7}, 0.5, 7}, {nil, 0.5, 0},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
}

func TestABurstReportsHalfAndAll(t *testing.T) {
	began := time.Unix(100, 0)
	ends := map[string]moments{}
	starts := map[string]time.Time{}
	for n, name := range []string{"a", "b", "c", "d"} {
		starts[name] = began
		ends[name] = moments{ready: began.Add(time.Duration(n+1) * time.Second)}
	}
	r := newResults()
	r.column("x").addPods("up", starts, began, ends, func(m moments) time.Time { return m.ready })
	text := report(settings{}, r, began)
	for _, want := range []string{"| up, ms | 2000 / 4000 / 4000 |", "| up, half of them, ms | 2000 /", "| up, all of them, ms | 4000 /"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
