package slots

import "testing"

func TestOneHasFewSlotsAndAllHaveFew(t *testing.T) {
	s := New(3, 2)
	for i, want := range []bool{true, true, false} {
		if s.Take("a", 1) != want {
			t.Fatalf("a takes the %d. slot: %v", i+1, !want)
		}
	}
	if s.Take("b", 2) || !s.Take("b", 1) || s.Take("c", 1) {
		t.Fatal("there are not three slots")
	}
	s.GiveBack("a", 1)
	if !s.Take("a", 1) {
		t.Fatal("a slot that was given back cannot be taken")
	}
	s.GiveBack("a", 2)
	s.GiveBack("b", 1)
	if s.all != 0 || len(s.of) != 0 {
		t.Errorf("%d and %v are left over", s.all, s.of)
	}
}
