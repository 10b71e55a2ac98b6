package slots

import "testing"

func TestOneHasFewSlotsAndAllHaveFew(t *testing.T) {
	s := New(3, 2)
	first, second := s.Take("a"), s.Take("a")
	if first == nil || second == nil || s.Take("a") != nil {
		t.Fatal("a has not two slots")
	}
	third := s.Take("b")
	if third == nil || s.Take("c") != nil {
		t.Fatal("there are not three slots")
	}
	first()
	if first = s.Take("a"); first == nil {
		t.Fatal("a slot that was given back cannot be taken")
	}
	first()
	second()
	third()
	if s.all != 0 || len(s.of) != 0 {
		t.Errorf("%d and %v are left over", s.all, s.of)
	}
}
