package node_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/registry"
)

// imageInodes is how many inodes the images' disk has, of which keepImageInodes percent
// have to be left.
const imageInodes, keepImageInodes = 6000, 30

// As the upstream node suite's ImageGCNoEviction, ImageGCTerminatedPodsContainersCleanup
// and InodeEviction have it, on a disk that only the images and layers are on.
func TestImagesAndEndedContainersGoBeforePodsWhenTheirOwnDiskIsShort(t *testing.T) {
	unused := registry.LocalName + "/unused:v1"
	h := build(t, plan{noRuntime: true, overrides: map[string]any{
		"evictionHard": map[string]any{
			"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "25%", "imagefs.inodesFree": fmt.Sprintf("%d%%", keepImageInodes),
		},
		"evictionPressureTransitionPeriod": "15s", "imageGCHighThresholdPercent": 100,
		"imageMinimumGCAge": "1s", // A kubelet keeps younger images though the disk is short.
	}, prepare: func(h *house) {
		h.must(unix.Mount("images", h.inst.Path("root"), "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=%d", imageDisk, imageInodes)))
		h.must(h.runtime.Process.Start(h.ctx))
		image, err := random.Image(bigImage, 1)
		h.must(err)
		h.must(h.images.Push(h.ctx, "unused:v1", image))
		h.pullBehindTheNode(unused)
	}})
	h.create(webApp("steady"))
	h.waitReady("steady", time.Minute)
	h.play([]story{
		{"what nobody needs is enough", func(h *house) { h.imagesAreEnough(unused) }},
		// Last: containerd frees a layer only with its next garbage collection, and other
		// pods may go for that.
		{"inodes of a writable layer", layerInodes},
	})
}

// imagesAreEnough has somebody who is no pod fill the disk.
func (h *house) imagesAreEnough(unused string) {
	done := app("done", "exit", "code=0")
	done.Spec.RestartPolicy = corev1.RestartPolicyNever
	h.create(done)
	h.eventually(time.Minute, "a pod has ended", func() error {
		p, err := h.pod("done")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodSucceeded, "%s", describe(p))
	})
	h.fillImageDisk(80)
	h.eventually(time.Minute, "the Node says that a disk is short", func() error {
		err := h.noPressure()
		return boolError(err != nil && strings.Contains(err.Error(), "DiskPressure"), "%v", err)
	})
	h.eventually(2*time.Minute, "what nobody needs is gone, and the node is short of nothing", func() error {
		return errors.Join(h.imageGone(unused), h.noContainerOf("done"), h.noPressure())
	})
	h.wantImages(images.TestApp, images.Pause)
	if n := h.nodeEvents("EvictionThresholdMet"); n == 0 {
		h.Error("no event EvictionThresholdMet")
	}
	if p, err := h.pod("steady"); err != nil || !isReady(p) || restarts(p) > 0 {
		h.Errorf("the pod whose image is used: %v, %v", err, describe(p))
	}
	if p, err := h.pod("done"); err != nil || p.Status.Phase != corev1.PodSucceeded || p.Status.Reason != "" {
		h.Errorf("the pod that had ended: %v, %v", err, describe(p))
	}
	body, err := h.nodeAPI("/metrics")
	h.must(err)
	if strings.Contains(body, "kubelet_evictions{") {
		h.Error("an eviction was counted")
	}
	if onKubelet() {
		return
	}
	out, err := h.polylet("explain", "node")
	h.must(err)
	if !strings.Contains(out, "imagefs.available") || !strings.Contains(out, "evicted nobody: after that enough is left") || strings.Contains(out, "evicted default/") {
		h.Errorf("polylet explain node:\n%s", out)
	}
}

// noContainerOf checks that the runtime has none of a pod.
func (h *house) noContainerOf(pod string) error {
	list, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": pod},
	}})
	return errors.Join(err, boolError(len(list.GetContainers()) == 0, "%s has %d containers", pod, len(list.GetContainers())))
}

func layerInodes(h *house) {
	var st unix.Statfs_t
	h.must(unix.Statfs(h.inst.Path("root"), &st))
	keep := uint64(imageInodes * keepImageInodes / 100)
	if st.Ffree <= keep {
		h.Fatalf("%d inodes are left at first", st.Ffree)
	}
	h.create(app("layer-inodes", "take", fmt.Sprintf("files=%d", st.Ffree-keep+500), "path=/"))
	h.measured("layer-inodes", h.ofDisk("root", func(st *unix.Statfs_t) uint64 { return st.Ffree }, keep))
	h.wantEvicted("layer-inodes", `The node was low on resource: inodes\. Threshold quantity: \d+, available: \d+\w*\. `, true)
	h.wantEvent("layer-inodes", map[string]string{"starved_resource": "inodes"})
	if onKubelet() {
		return // It goes by what layers weighed before, and other pods may go first.
	}
	hog, err := h.pod("layer-inodes")
	h.must(err)
	if p, err := h.pod("steady"); err == nil && p.Status.Reason == "Evicted" {
		if disrupted(p).Before(disrupted(hog)) {
			out, err := h.polylet("explain", "node")
			h.Errorf("the pod that has few files went first: %s\n%s\n%v", describe(p), out, err)
		}
	}
}

// A container fills its writable layer and crashes at once: nothing of its pod runs then, for
// as long as its back-off is, and the layer stays. A kubelet has no figures of such a pod, and
// evicts it first.
func TestWhoHasFilledADiskAndCrashedGoesAndNoOther(t *testing.T) {
	const disk, keep = 400, 33 // MiB, percent
	h := build(t, plan{noRuntime: true, overrides: map[string]any{
		"evictionHard": map[string]any{
			"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": fmt.Sprintf("%d%%", keep), "imagefs.inodesFree": "0%",
		},
		"evictionPressureTransitionPeriod": "2s", "volumeStatsAggPeriod": "1s",
	}, prepare: func(h *house) {
		h.must(unix.Mount("images", h.inst.Path("root"), "tmpfs", 0, fmt.Sprintf("size=%dm", disk)))
		h.must(h.runtime.Process.Start(h.ctx))
	}})
	small := []string{"small-0", "small-1"}
	for _, name := range small {
		h.create(app(name, "take", "mebibytes=1", "path=/file"))
	}
	for _, name := range small {
		h.waitReady(name, time.Minute)
	}
	h.create(withScratch(app("crashed", "take", fmt.Sprintf("mebibytes=%d", disk*7/10), "path=/file", "crash=/scratch/times"), ""))
	h.measured("crashed", h.ofDisk("root", availableBytes, disk<<20*keep/100))
	h.eventually(3*time.Minute, "it is evicted", func() error {
		p, err := h.pod("crashed")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted", "%s", describe(p))
	})
	h.wantEvent("crashed", nil)
	p, err := h.pod("crashed")
	h.must(err)
	h.Logf("%s", describe(p))
	for _, name := range small { // Others may go later: containerd frees a layer only with its next garbage collection.
		if other, err := h.pod(name); err == nil && other.Status.Reason == "Evicted" && disrupted(other).Before(disrupted(p)) {
			h.Errorf("%s went first, which has a mebibyte: %s", name, describe(other))
		}
	}
	if onKubelet() {
		return
	}
	out, err := h.polylet("explain", "node")
	h.must(err)
	h.Logf("%s", out)
	if !strings.Contains(out, "it uses 280Mi and asked for 0") && !strings.Contains(out, "it uses 2867") {
		h.Errorf("polylet explain node does not say what the pod had:\n%s", out)
	}
}

// What an evicted pod leaves in the runtime goes though the apiserver does not know of its end:
// else the disk stays short, and every other pod goes after it.
func TestOnlyTheHogGoesThoughTheApiserverIsAway(t *testing.T) {
	const disk, keep, hog = 400, 33, 180 // MiB, percent, MiB
	h := build(t, plan{noRuntime: true, overrides: map[string]any{
		"evictionHard": map[string]any{
			"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": fmt.Sprintf("%d%%", keep), "imagefs.inodesFree": "0%",
		},
		"evictionPressureTransitionPeriod": "2s", "volumeStatsAggPeriod": "1s",
	}, prepare: func(h *house) {
		h.must(unix.Mount("images", h.inst.Path("root"), "tmpfs", 0, fmt.Sprintf("size=%dm", disk)))
		h.freeLayersAtOnce()
		h.must(h.runtime.Process.Start(h.ctx))
	}})
	left := h.ofDisk("root", availableBytes, 0).left
	before, small := left(), []string{"small-0", "small-1", "small-2"}
	for _, name := range small {
		h.create(app(name, "take", "mebibytes=1", "path=/file"))
	}
	h.create(app("hog", "take", fmt.Sprintf("mebibytes=%d", hog), "path=/file"))
	for _, name := range append([]string{"hog"}, small...) {
		h.waitReady(name, time.Minute)
	}
	h.eventually(time.Minute, "all is written", func() error {
		now := left()
		return boolError(now+uint64(hog+len(small))<<20 <= before, "%d of %d MiB are left", now>>20, before>>20)
	})
	h.cluster.APIServer.Kill()
	ballast := left() - disk<<20*keep/100 + 20<<20
	h.must(os.WriteFile(h.inst.Path("root")+"/ballast", make([]byte, ballast), 0o600))
	h.eventually(3*time.Minute, "what the hog had is free", func() error {
		now := left()
		return boolError(now > disk<<20*keep/100+hog<<20/2, "%d MiB are left, and of the pods with a mebibyte run %v", now>>20, h.running(small...))
	})
	if got := h.running(small...); !slices.Equal(got, small) {
		h.Errorf("of pods that have a mebibyte there run only %v", got)
	}
	h.must(h.cluster.APIServer.Start(h.ctx))
	h.eventually(time.Minute, "the apiserver knows who was evicted", func() error {
		p, err := h.pod("hog")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted", "%s", describe(p))
	})
	for _, name := range small {
		if p, err := h.pod(name); err != nil || restarts(p) > 0 || p.Status.Phase != corev1.PodRunning {
			h.Errorf("%s: %v, %s", name, err, describe(p))
		}
	}
}

// freeLayersAtOnce has containerd collect its garbage after each removal.
func (h *house) freeLayersAtOnce() {
	file, err := os.OpenFile(h.inst.Path("containerd.toml"), os.O_WRONLY|os.O_APPEND, 0)
	h.must(err)
	_, err = file.WriteString("[plugins.'io.containerd.gc.v1.scheduler']\n  deletion_threshold = 1\n  schedule_delay = \"0ms\"\n")
	h.must(errors.Join(err, file.Close()))
}

// running are the pods of these of which a container runs.
func (h *house) running(names ...string) (out []string) {
	list, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	h.must(err)
	for _, name := range names {
		if slices.ContainsFunc(list.GetContainers(), func(c *runtimeapi.Container) bool {
			return c.GetLabels()["io.kubernetes.pod.name"] == name
		}) {
			out = append(out, name)
		}
	}
	return out
}

// disrupted is when a pod was chosen to be evicted.
func disrupted(p *corev1.Pod) time.Time {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	return p.Status.Conditions[max(i, 0)].LastTransitionTime.Time
}
