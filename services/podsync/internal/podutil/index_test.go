package podutil

import (
	"strconv"
	"testing"
)

func TestOfFewAndOfManyTheFirstThingOfAKeyIsFound(t *testing.T) {
	for _, n := range []int{0, 1, few, few + 1, 100} {
		type thing struct {
			key   string
			place int
		}
		things, asked := make([]thing, 0, 2*n), 0
		for range 2 {
			for i := range n {
				things = append(things, thing{strconv.Itoa(i), len(things)})
			}
		}
		x := NewIndex(things, func(t *thing) string { asked++; return t.key })
		for i := range n {
			found := x.Find(strconv.Itoa(i))
			if found == nil || found != &things[i] {
				t.Errorf("of %d things, number %d is found as %+v", 2*n, i, found)
			}
		}
		if x.Find("another") != nil {
			t.Errorf("of %d things one is found that is not there", 2*n)
		}
		if most := 2 * n * (few + 1); asked > most {
			t.Errorf("things were looked at %d times for %d of them, at most %d do", asked, 2*n, most)
		}
	}
	var none Index[string, int]
	if none.Find("") != nil {
		t.Error("the zero value finds something")
	}
}
