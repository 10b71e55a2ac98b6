package threshold

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestThresholdsAreReadFromTheConfiguration(t *testing.T) {
	got, err := Parse(
		map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "0%", "pid.available": "100%"},
		map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": "1m30s"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Threshold{
		{Signal: "memory.available", Quantity: 100 << 20, Hard: true}, {Signal: "nodefs.available", Percent: 10, Hard: true},
		{Signal: "memory.available", Quantity: 1 << 30, Grace: 90 * time.Second},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("thresholds (-want +got):\n%s", diff)
	}
	if got := got[1].Of(1000); got != 100 {
		t.Errorf("10%% of 1000 is %d", got)
	}
}

func TestAThresholdThatMeansNothingIsRefused(t *testing.T) {
	for name, test := range map[string][3]map[string]string{
		"unknown signal": {{"memory.free": "1Mi"}}, "no quantity": {{"memory.available": "a lot"}}, "negative": {{"memory.available": "-1"}},
		"over 100 %": {{"memory.available": "101%"}}, "soft without grace": {nil, {"memory.available": "1Mi"}},
		"soft with a bad grace": {nil, {"memory.available": "1Mi"}, {"memory.available": "soon"}},
	} {
		if got, err := Parse(test[0], test[1], test[2]); err == nil {
			t.Errorf("%s: %v and no error", name, got)
		}
	}
}

func FuzzThresholdsOfAnyTextAreReadOrRefused(f *testing.F) {
	f.Add("memory.available", "10%")
	f.Add("pid.available", "1e3")
	f.Fuzz(func(t *testing.T, signal, text string) {
		got, err := Parse(map[string]string{signal: text}, nil, nil)
		if err != nil {
			return
		}
		for _, x := range got {
			if x.Percent < 0 || x.Percent >= 100 || x.Percent == 0 && x.Quantity == 0 {
				t.Errorf("%q gives %+v", text, x)
			}
		}
	})
}
