package collector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/summary"
)

// renewed is disk with what was measured of pods since a time, as far as there is time for
// it; of which of them there was not is said.
func (c *Collector) renewed(ctx context.Context, all []inventory.PresentPod, asked Asked) (*summary.Disk, error) {
	since, now, pods := asked.Since, time.Now(), asked.these(all)
	pressing := len(asked.Of) == 0 // a disk is short
	if since.IsZero() || since.After(now) {
		since = now
	}
	waitCtx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	out, layers := &summary.Disk{}, layersOf(pods)
	var usage disk.RuntimeUsage
	var weighed disk.Weights
	var asking sync.WaitGroup
	asking.Go(func() { usage = c.deps.Runtime.Renew(waitCtx) })
	if c.deps.Layers != nil {
		asking.Go(func() { weighed = c.deps.Layers.Weigh(waitCtx, c.deps.Runtime.Last(), layers, since, pressing) })
	}
	have, late := c.deps.Directories.Renew(waitCtx, c.places(pods, &summary.Disk{}), since, pressing)
	if dirs := c.places(all, out); len(pods) < len(all) {
		out.Directories = c.deps.Directories.Get(waitCtx, dirs)
		maps.Copy(out.Directories, have)
	} else {
		out.Directories = have
	}
	out.Driven = c.deps.Driven.Get(waitCtx, driven(all))
	asking.Wait()
	var unweighed map[string]bool
	out.Layers, unweighed = weighed.Beside(usage.Layers, layers, since)
	for _, layer := range layers {
		if _, weighs := out.Layers[layer.Container]; !weighs && usage.Omits(layer) {
			delete(unweighed, layer.Container)
		}
	}
	unknown, err := c.deps.Meter.Beside(known(layersOf(all)))
	if err != nil {
		return nil, fmt.Errorf("list the containers' processes: %w", err)
	}
	out.Unweighed = slices.Collect(maps.Keys(unknown))
	for _, pod := range pods {
		uid := pod.Sandbox.Pod.UID
		if !unknown[uid] && slices.ContainsFunc(layersOf([]inventory.PresentPod{pod}), func(layer disk.Layer) bool { return unweighed[layer.Container] }) {
			out.Unweighed = append(out.Unweighed, uid)
		}
		dirs := append(directories([]inventory.PresentPod{pod}), c.own(pod)...)
		if !unknown[uid] && slices.ContainsFunc(dirs, func(d disk.Directory) bool { return late[d.Path] && !d.FilesystemOnly }) {
			out.Unmeasured = append(out.Unmeasured, uid)
		}
	}
	out.Unmeasured = append(out.Unmeasured, slices.Collect(maps.Keys(unknown))...)
	slices.Sort(out.Unweighed)
	slices.Sort(out.Unmeasured)
	return out, c.filesystems(ctx, out, usage)
}

// these are the pods of which it is measured anew.
func (a Asked) these(all []inventory.PresentPod) []inventory.PresentPod {
	if len(a.Of) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(pod inventory.PresentPod) bool {
		return !slices.Contains(a.Of, pod.Sandbox.Pod.UID)
	})
}

// known are the containers of layers.
func known(layers []disk.Layer) map[string]bool {
	out := make(map[string]bool, len(layers))
	for _, layer := range layers {
		out[layer.Container] = true
	}
	return out
}

// layersOf lists the writable layers of pods.
func layersOf(pods []inventory.PresentPod) (out []disk.Layer) {
	for _, pod := range pods {
		for _, k := range slices.Concat(pod.Containers, pod.Ended, pod.Older) {
			out = append(out, disk.Layer{Container: k.ID, Namespace: pod.Sandbox.Pod.Namespace, Over: k.Over})
		}
	}
	return out
}
