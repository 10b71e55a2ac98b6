package report

import "testing"

func TestQuantilesAreValuesOfTheSample(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{ten, 0.5, 5}, {ten, 0.9, 9}, {ten, 1, 10}, {[]float64{7}, 0.5, 7}, {nil, 0.5, 0},
	} {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
}
