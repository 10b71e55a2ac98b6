package node_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// usageOf is what /stats/summary says of a pod's volume; nil when it says nothing.
func (h *house) usageOf(pod, volume string) (*statsapi.VolumeStats, error) {
	body, err := h.nodeAPI("/stats/summary")
	if err != nil {
		return nil, err
	}
	var summary statsapi.Summary
	if err := json.Unmarshal([]byte(body), &summary); err != nil {
		return nil, err
	}
	for _, p := range summary.Pods {
		for i := range p.VolumeStats {
			if p.PodRef.Name == pod && p.VolumeStats[i].Name == volume {
				return &p.VolumeStats[i], nil
			}
		}
	}
	return nil, nil
}

// TestADriverSaysHowFullItsVolumesAre has the document ask the CSI driver, also one that
// hangs.
func TestADriverSaysHowFullItsVolumesAre(t *testing.T) {
	h := build(t, plan{overrides: map[string]any{"volumeStatsAggPeriod": "1s"}})
	d := h.csi("-stats")
	h.create(withCSI("measured"))
	h.waitReady("measured", time.Minute)
	h.eventually(time.Minute, "its volume is as its driver says", func() error {
		v, err := h.usageOf("measured", "v")
		if err != nil {
			return err
		}
		if v == nil || v.UsedBytes == nil || v.CapacityBytes == nil || v.InodesFree == nil {
			return fmt.Errorf("it is %+v", v)
		}
		return boolError(*v.UsedBytes == 40 && *v.CapacityBytes == 100 && *v.InodesFree == 6, "it is %d of %d", *v.UsedBytes, *v.CapacityBytes)
	})
	if onKubelet() {
		return
	}
	undo := d.fault("NodeGetVolumeStats", "")
	defer undo()
	h.create(withCSI("later"))
	h.waitReady("later", time.Minute)
	begun := time.Now()
	if _, err := h.usageOf("later", "v"); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("while the driver hangs the document takes %v", took)
	}
	if metrics, err := h.nodeAPI("/metrics"); err != nil || !strings.Contains(metrics, `kubelet_volume_metric_collection_duration_seconds_count{metric_source="`+csiDriver+`"}`) {
		t.Errorf("the driver's answers are not counted: %v", err)
	}
}
