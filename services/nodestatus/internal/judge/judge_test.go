package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func TestAllWhoAskHearTheSame(t *testing.T) {
	frame := pressure.Frame{}
	soft := threshold.Threshold{Signal: "imagefs.available", Amount: threshold.Amount{Quantity: 10}, Grace: time.Minute}
	j := New(Config{Thresholds: []threshold.Threshold{soft}, Transition: 5 * time.Minute}, func() pressure.Frame { return frame })
	start := time.Unix(1000, 0)
	if _, _, known := j.Judge(start); known || j.Seeded() {
		t.Error("judged without signals")
	}
	j.Seed(pressure.Told{Kinds: []pressure.Kind{pressure.Memory}, Time: start})
	frame = pressure.Frame{
		Signals: []pressure.Signal{{Name: "imagefs.available", Available: 9, Capacity: 99}, {Name: "containerfs.available", Available: 9, Capacity: 99}},
		Layout:  threshold.Layout{ImagesApart: true},
	}
	first, _, known := j.Judge(start.Add(time.Second))
	if want := []string{"MemoryPressure", "DiskPressure"}; !known || !j.Seeded() || !slices.Equal(first.Names(), want) || len(first.Due) > 0 {
		t.Errorf("%v, due %v", first.Names(), first.Due)
	}
	// Another one looks, a minute after the first did.
	second, _, _ := j.Judge(start.Add(61 * time.Second))
	if len(second.Due) != 2 || second.Due[1].Signal != "containerfs.available" || !second.Due[0].Since.Equal(start.Add(time.Second)) {
		t.Errorf("due %+v", second.Due)
	}
}

func TestAPressureOfTheRunBeforeIsNotTakenBackByWhoLooksBeforeItIsKnown(t *testing.T) {
	frame := pressure.Frame{Signals: []pressure.Signal{}}
	j := New(Config{Transition: time.Minute}, func() pressure.Frame { return frame })
	start := time.Unix(1000, 0)
	j.Judge(start)
	j.Seed(pressure.Told{Kinds: []pressure.Kind{pressure.Memory}, Time: start})
	if got, _, _ := j.Judge(start.Add(2 * time.Second)); !got.Under[pressure.Memory] {
		t.Error("it is gone")
	}
	if got, _, _ := j.Judge(start.Add(time.Minute)); got.Under[pressure.Memory] {
		t.Error("it counts from when it was told, not from when that is known")
	}
	j.Seed(pressure.Told{Kinds: []pressure.Kind{pressure.Disk}, Time: start.Add(time.Minute)})
	if got, _, _ := j.Judge(start.Add(61 * time.Second)); got.Under[pressure.Disk] {
		t.Error("what this run has said itself is taken for what another found")
	}
}
