package raced

import "testing"

func TestWithTheRaceDetectorThereIsATenthButSomething(t *testing.T) {
	for n, tenth := range map[int]int{500: 50, 10: 1, 3: 1} {
		want := n
		if Enabled {
			want = tenth
		}
		if got := Share(n); got != want {
			t.Errorf("of %d there are %d, want %d", n, got, want)
		}
	}
}
