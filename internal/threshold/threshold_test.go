package threshold

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestThresholdsAreReadFromTheConfiguration(t *testing.T) {
	got, err := Parse(Settings{
		Hard: map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "0%", "pid.available": "100%"},
		Soft: map[string]string{"memory.available": "1Gi"}, SoftGrace: map[string]string{"memory.available": "1m30s"},
		MinimumReclaim: map[string]string{"memory.available": "0", "nodefs.available": "5%"}, PodsEnforced: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Threshold{
		{Signal: "memory.available", Amount: Amount{Quantity: 100 << 20}, Text: "100Mi", Hard: true},
		{Signal: "nodefs.available", Amount: Amount{Percent: 10}, Reclaim: Amount{Percent: 5}, Hard: true},
		{Signal: "memory.available", Amount: Amount{Quantity: 1 << 30}, Text: "1Gi", Grace: 90 * time.Second, Soft: true},
		{Signal: "allocatableMemory.available", Amount: Amount{Quantity: 100 << 20}, Text: "100Mi", Hard: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("thresholds (-want +got):\n%s", diff)
	}
	if got := got[1].Of(1000); got != 100 {
		t.Errorf("10%% of 1000 is %d", got)
	}
	if got := got[1].Enough(1000); got != 150 {
		t.Errorf("with a minimum reclaim of 5%% %d of 1000 is enough", got)
	}
}

func TestTheMemoryOfAllPodsHasTheHardThresholdOfTheNodes(t *testing.T) {
	for name, test := range map[string]struct {
		settings Settings
		want     []Threshold // of the memory of all pods
	}{
		"a part of it, with a reclaim": {
			Settings{Hard: map[string]string{Memory: "10%"}, MinimumReclaim: map[string]string{Memory: "5%"}, PodsEnforced: true},
			[]Threshold{{Signal: AllocatableMemory, Amount: Amount{Percent: 10}, Reclaim: Amount{Percent: 5}, Hard: true}},
		},
		"one of its own": {
			Settings{Hard: map[string]string{Memory: "10%", AllocatableMemory: "20%"}, PodsEnforced: true},
			[]Threshold{{Signal: AllocatableMemory, Amount: Amount{Percent: 20}, Hard: true}, {Signal: AllocatableMemory, Amount: Amount{Percent: 10}, Hard: true}},
		},
		"the same of its own": {
			Settings{Hard: map[string]string{Memory: "10%", AllocatableMemory: "10%"}, PodsEnforced: true},
			[]Threshold{{Signal: AllocatableMemory, Amount: Amount{Percent: 10}, Hard: true}},
		},
		"a soft one beside it that acts at once": {
			Settings{Hard: map[string]string{Memory: "10%"}, Soft: map[string]string{Memory: "20%"}, SoftGrace: map[string]string{Memory: "0s"}, PodsEnforced: true},
			[]Threshold{{Signal: AllocatableMemory, Amount: Amount{Percent: 10}, Hard: true}, {Signal: AllocatableMemory, Amount: Amount{Percent: 20}, Hard: true, Soft: true}},
		},
		"the node has a soft one only": {Settings{Soft: map[string]string{Memory: "1Gi"}, SoftGrace: map[string]string{Memory: "10s"}, PodsEnforced: true}, nil},
		"the node has another only":    {Settings{Hard: map[string]string{"imagefs.available": "150Mi"}, PodsEnforced: true}, nil},
		"pods are not limited":         {Settings{Hard: map[string]string{Memory: "10%"}}, nil},
		"it is off":                    {Settings{Hard: map[string]string{Memory: "0%"}, PodsEnforced: true}, nil},
	} {
		all, err := Parse(test.settings)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []Threshold
		for _, one := range all {
			if one.Signal == AllocatableMemory {
				got = append(got, one)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Kubelet 1.36: isHardEvictionThreshold.
func TestASoftThresholdWithoutAGracePeriodIsHardAsForAKubelet(t *testing.T) {
	got, err := Parse(Settings{
		Hard: map[string]string{"nodefs.available": "10%"}, Soft: map[string]string{"memory.available": "200Mi", "nodefs.available": "10%", "pid.available": "20%"},
		SoftGrace: map[string]string{"memory.available": "0s", "nodefs.available": "0s", "pid.available": "1s"}, PodsEnforced: true,
	})
	want := []Threshold{
		{Signal: "nodefs.available", Amount: Amount{Percent: 10}, Hard: true}, // Both are the same.
		{Signal: "memory.available", Amount: Amount{Quantity: 200 << 20}, Text: "200Mi", Hard: true, Soft: true},
		{Signal: "pid.available", Amount: Amount{Percent: 20}, Grace: time.Second, Soft: true},
		{Signal: "allocatableMemory.available", Amount: Amount{Quantity: 200 << 20}, Text: "200Mi", Hard: true, Soft: true},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// Kubelet 1.36 ignores "0%" and "100%" by their text.
func TestAHundredPercentIsOffOnlyWhereItIsWrittenSo(t *testing.T) {
	for text, want := range map[string]int{"100%": 0, "100.0%": 1, "1e2%": 1, "0%": 0, "0.0%": 0} {
		if got, err := Parse(Settings{Hard: map[string]string{"memory.available": text}}); err != nil || len(got) != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestAThresholdThatMeansNothingIsRefused(t *testing.T) {
	for name, test := range map[string][4]map[string]string{
		"unknown signal": {{"memory.free": "1Mi"}}, "no quantity": {{"memory.available": "a lot"}}, "negative": {{"memory.available": "-1"}},
		"over 100 %": {{"memory.available": "101%"}}, "soft without grace": {nil, {"memory.available": "1Mi"}},
		"soft with a bad grace": {nil, {"memory.available": "1Mi"}, {"memory.available": "soon"}}, "nothing": {{"memory.available": "0"}},
		"reclaim of no signal": {nil, nil, nil, {"memory.used": "1Mi"}}, "negative reclaim": {nil, nil, nil, {"memory.available": "-1"}}, "not a number": {{"memory.available": "NaN%"}},
		"space": {{"memory.available": " 10%"}}, "soft nothing": {nil, {"memory.available": "0Mi"}, {"memory.available": "1m"}},
		"negative part": {{"memory.available": "-15%"}}, "empty": {{"memory.available": ""}}, "two points": {{"memory.available": "10..5%"}},
		"one of two is unknown": {{"memory.available": "150Mi", "invalid.foo": "150Mi"}}, "soft and negative": {nil, {"memory.available": "-150Mi"}, {"memory.available": "1m"}},
		"soft with a negative grace": {nil, {"memory.available": "150Mi"}, {"memory.available": "-30s"}}, "empty reclaim": {nil, nil, nil, {"memory.available": ""}},
		"negative part as reclaim": {nil, nil, nil, {"memory.available": "-15%"}}, "reclaim with two points": {nil, nil, nil, {"memory.available": "10..5%"}},
		"grace of no signal": {nil, nil, {"memory.used": "1m"}}, "grace of nothing that is no time": {nil, nil, {"memory.available": "soon"}},
		"grace of nothing that is negative": {nil, nil, {"memory.available": "-1s"}},
	} {
		if got, err := Parse(Settings{Hard: test[0], Soft: test[1], SoftGrace: test[2], MinimumReclaim: test[3]}); err == nil {
			t.Errorf("%s: %v and no error", name, got)
		}
	}
}

// The kubelet takes a time without a threshold, too, if it is one.
func TestATimeWithoutASoftThresholdIsNoThreshold(t *testing.T) {
	got, err := Parse(Settings{Soft: map[string]string{"memory.available": "0%"}, SoftGrace: map[string]string{"memory.available": "1m", "nodefs.available": "0s"}})
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAllThatIsWrongWithThresholdsIsNamedByFieldAndSignal(t *testing.T) {
	_, err := Parse(Settings{
		Hard: map[string]string{"memory.available": "0", "nodefs.available": "1%"}, Soft: map[string]string{"pid.available": "5", "imagefs.available": "0%"},
		MinimumReclaim: map[string]string{"nodefs.available": "-1", "imagefs.available": "0"},
	})
	want := strings.Join([]string{
		`evictionHard.memory.available: invalid value "0": more than 0; 0% switches the signal off`,
		`evictionSoftGracePeriod.pid.available: invalid value "": a duration such as 1m30s, since evictionSoft has this signal`,
		`evictionMinimumReclaim.nodefs.available: invalid value "-1": 0 or more`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func FuzzThresholdsOfAnyTextAreReadOrRefused(f *testing.F) {
	f.Add("memory.available", "10%")
	f.Add("pid.available", "1e3")
	f.Fuzz(func(t *testing.T, signal, text string) {
		got, err := Parse(Settings{Hard: map[string]string{signal: text}})
		if err != nil {
			return
		}
		for _, x := range got {
			if x.Percent < 0 || x.Percent > 100 || x.Percent == 0 && x.Quantity == 0 {
				t.Errorf("%q gives %+v", text, x)
			}
		}
	})
}
