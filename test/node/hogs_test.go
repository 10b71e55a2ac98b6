package node_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// hogDisk is the size of the disk of the node's root directory and of that of the
	// images, in MiB; hogInodes how many inodes the first has.
	hogDisk, hogInodes = 1024, 20000
	// keepPercent of such a disk have to be left, and keepInodes of its inodes.
	keepPercent, keepInodes = 33, 30
	// keepThreads is how many more threads than there are at first the machine may
	// have: whatever else runs on it takes fewer. A hog takes twice as many.
	keepThreads = 5000
)

// shortage is a resource of the node that a hog uses up.
type shortage struct {
	// left is what is left of it, keep what has to be.
	left func() uint64
	keep uint64
}

// The node's root directory and the images have disks of 1 GiB of their own, so that each
// threshold is crossed for real. The words are the kubelet's: this test passes on it
// too, but for what only polylet has.
func TestWhoeverUsesTheNodeUpIsEvictedInTheKubeletsWords(t *testing.T) {
	running, most := threads(t)
	h := build(t, plan{noRuntime: true, overrides: map[string]any{
		"evictionHard": map[string]any{
			"memory.available": "50Mi", "nodefs.available": fmt.Sprintf("%d%%", keepPercent), "nodefs.inodesFree": fmt.Sprintf("%d%%", keepInodes),
			"imagefs.available": fmt.Sprintf("%d%%", keepPercent), "imagefs.inodesFree": "0%",
			"pid.available": fmt.Sprint(most - running - keepThreads),
		},
		"evictionPressureTransitionPeriod": "2s", "volumeStatsAggPeriod": "1s",
	}, prepare: func(h *house) {
		h.ownDisk("kubelet", hogDisk, hogInodes)
		h.ownDisk("root", hogDisk, 0)
		h.must(h.runtime.Process.Start(h.ctx))
	}})
	h.create(withScratch(app("small", "take", "mebibytes=5", "path=/scratch/file"), ""))
	h.waitReady("small", time.Minute)
	h.play([]story{
		{"limits of a pod's own are crossed", crossTheirLimits},
		{"a volume in memory", notEvictedForMemoryVolume},
		{"inodes", evictedForInodes},
		{"a disk", evictedForADisk},
		{"a file that was removed and is open", evictedForAnOpenFile}, // The kubelet evicts others first.
		{"threads", func(h *house) { h.evictedForThreads(most) }},
		{"limits of a pod's own", evictedForTheirLimits},
		{"the pod that uses little", func(h *house) {
			if p, err := h.pod("small"); !onKubelet() && (err != nil || !isReady(p) || restarts(p) > 0) {
				h.Errorf("%v, %v", err, describe(p))
			}
		}},
		// Last: containerd frees a layer only with its next garbage collection, and other
		// pods may go for that.
		{"the images' disk", evictedForImageDisk},
		{"what a kubelet says", func(h *house) { h.wantRecord("hogs", []string{"small"}) }},
	})
}

// threads are how many the machine has, and may have.
func threads(t *testing.T) (running, most uint64) {
	t.Helper()
	var pids, all uint64
	for file, into := range map[string]*uint64{"pid_max": &pids, "threads-max": &all} {
		data, err := os.ReadFile("/proc/sys/kernel/" + file)
		if err == nil {
			_, err = fmt.Sscan(string(data), into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return runningThreads(), min(pids, all)
}

func runningThreads() (n uint64) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	_, total, _ := strings.Cut(fields[3], "/")
	if _, err := fmt.Sscan(total, &n); err != nil {
		return 0
	}
	return n
}

// All limits are crossed at once, each by a pod of its own; what comes of it is looked at
// when all else has been.
func crossTheirLimits(h *house) {
	limited := func(p *corev1.Pod, limit string) *corev1.Pod {
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(limit)}
		}
		return p
	}
	logger := limited(app("logger", "logs", "lines=40000"), "2Mi")
	second := app("", "take").Spec.Containers[0] // One that ends badly: else the kubelet says that the pod has succeeded.
	second.Name = "roomy"
	second.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("50Mi")}
	logger.Spec.Containers = append(logger.Spec.Containers, second)
	volume := withScratch(app("volume", "take", "mebibytes=3", "path=/scratch/file"), "2Mi")
	whole := limited(withScratch(app("whole", "take", "mebibytes=3", "path=/scratch/file"), ""), "2Mi")
	layer := limited(app("layer", "take", "mebibytes=3", "path=/file"), "2Mi")
	h.create(logger, volume, whole, layer)
	if !onKubelet() { // It counts no file that was removed.
		open := withScratch(app("volume-open", "take", "mebibytes=3", "path=/scratch/file", "unlink=true"), "2Mi")
		open.Spec.Volumes = append(open.Spec.Volumes, corev1.Volume{Name: "beside", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		open.Spec.Containers[0].VolumeMounts = append(open.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "beside", MountPath: "/beside"})
		h.create(
			open,
			limited(withScratch(app("whole-open", "take", "mebibytes=3", "path=/scratch/file", "unlink=true"), ""), "2Mi"),
			limited(app("layer-open", "take", "mebibytes=3", "path=/file", "unlink=true"), "2Mi"),
		)
	}
}

func evictedForTheirLimits(h *house) {
	const ofVolume, ofPod = `Usage of EmptyDir volume "scratch" exceeds the limit "2Mi"\. `, `Pod ephemeral local storage usage exceeds the total limit of containers 2Mi\. `
	wants := []struct{ name, message string }{
		{"volume", ofVolume}, {"whole", ofPod}, {"layer", ofPod}, {"logger", `Container app exceeded its local ephemeral storage limit "2Mi"\. `},
	}
	counts := map[string]int{"emptydirfs.limit": 1, "ephemeralpodfs.limit": 2, "ephemeralcontainerfs.limit": 1}
	if !onKubelet() {
		for _, w := range wants[:3] {
			w.name += "-open"
			wants = append(wants, w)
		}
		counts["emptydirfs.limit"], counts["ephemeralpodfs.limit"] = 2, 4
	}
	for _, want := range wants {
		h.wantEvicted(want.name, want.message, false)
		p, err := h.pod(want.name)
		h.must(err)
		if end := p.Status.ContainerStatuses[0].State.Terminated; end != nil {
			h.Logf("MEASURED limit of %s: %s from its start to its end", want.name, end.FinishedAt.Sub(end.StartedAt.Time))
		}
		h.wantEvent(want.name, nil)
	}
	for signal, n := range counts {
		h.eventually(time.Minute, "the evictions are counted", func() error { return h.evictionsCountedTimes(signal, n) })
	}
}

// A volume in memory is as large as its limit: who wants more gets an error, and is
// not evicted.
func notEvictedForMemoryVolume(h *house) {
	p := withScratch(app("in-memory", "take", "mebibytes=5", "path=/scratch/file"), "2Mi")
	p.Spec.Volumes[0].EmptyDir.Medium = corev1.StorageMediumMemory
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	h.create(p)
	h.eventually(time.Minute, "its program fails", func() error {
		p, err := h.pod("in-memory")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed, "%s", describe(p))
	})
	if p, err := h.pod("in-memory"); err != nil || p.Status.Reason != "" || p.Status.Message != "" {
		h.Errorf("%v, %s", err, describe(p))
	}
}

func evictedForInodes(h *house) {
	h.create(withScratch(app("inodes", "take", fmt.Sprintf("files=%d", hogInodes*3/4), "path=/scratch"), ""))
	h.measured("inodes", h.ofDisk("kubelet", func(st *unix.Statfs_t) uint64 { return st.Ffree }, h.statfs("kubelet").Files*keepInodes/100))
	h.wantEvicted("inodes", `The node was low on resource: inodes\. Threshold quantity: \d+, available: \d+\w*\. `, true)
	h.wantEvent("inodes", map[string]string{"starved_resource": "inodes"})
	h.afterwards("nodefs.inodesFree", 1)
}

func evictedForADisk(h *house) {
	h.create(withScratch(app("disk", "take", fmt.Sprintf("mebibytes=%d", hogDisk*7/10), "path=/scratch/file"), ""))
	h.measured("disk", h.ofDisk("kubelet", availableBytes, h.bytesToKeep("kubelet")))
	h.wantEvicted("disk", `The node was low on resource: ephemeral-storage\. Threshold quantity: \d+, available: \d+\w*\. .*`, true)
	h.wantEvent("disk", map[string]string{"starved_resource": "ephemeral-storage"})
	h.afterwards("nodefs.available", 1)
}

func evictedForAnOpenFile(h *house) {
	h.create(withScratch(app("open", "take", fmt.Sprintf("mebibytes=%d", hogDisk*7/10), "path=/scratch/file", "unlink=true"), ""))
	h.measured("open", h.ofDisk("kubelet", availableBytes, h.bytesToKeep("kubelet")))
	h.wantEvicted("open", `The node was low on resource: ephemeral-storage\. Threshold quantity: \d+, available: \d+\w*\. .*`, true)
	if onKubelet() {
		h.afterwards("nodefs.available", 3)
		return
	}
	h.afterwards("nodefs.available", 2)
	out, err := h.polylet("explain", "node")
	h.must(err)
	// It goes as soon as too little is left, and has not written all of it by then.
	if !regexp.MustCompile(`evicted default/open .*container app holds \d+\w+ open in files that were removed, the largest of them "/scratch/file"`).MatchString(out) {
		h.Errorf("polylet explain node does not name the file:\n%s", out)
	}
}

func evictedForImageDisk(h *house) {
	h.create(app("layer-hog", "take", fmt.Sprintf("mebibytes=%d", hogDisk*7/10), "path=/file"))
	h.measured("layer-hog", h.ofDisk("root", availableBytes, h.bytesToKeep("root")))
	h.wantEvicted("layer-hog", `The node was low on resource: ephemeral-storage\. Threshold quantity: \d+, available: \d+\w*\. (Container app was using \d+\w*, request is 0, has larger consumption of ephemeral-storage\. )?`, true)
	h.wantEvent("layer-hog", map[string]string{"starved_resource": "ephemeral-storage"})
	if out, err := h.polylet("explain", "node"); !onKubelet() {
		h.Logf("%s\n%v", out, err)
	}
}

func (h *house) evictedForThreads(most uint64) {
	running := runningThreads()
	h.create(app("threads", "take", fmt.Sprintf("threads=%d", 2*keepThreads)))
	h.measured("threads", shortage{left: func() uint64 { return most - runningThreads() }, keep: most - running - keepThreads})
	h.wantEvicted("threads", `The node was low on resource: pids\. Threshold quantity: \d+, available: \d+\. `, true)
	h.wantEvent("threads", map[string]string{"starved_resource": "pids"})
	h.afterwards("pid.available", 1)
}

// bytesToKeep are what has to be left of a disk.
func (h *house) bytesToKeep(disk string) uint64 {
	h.Helper()
	st := h.statfs(disk)
	return st.Blocks * uint64(st.Bsize) * keepPercent / 100
}

func availableBytes(st *unix.Statfs_t) uint64 { return st.Bavail * uint64(st.Bsize) }

// ofDisk is a shortage of a disk of the instance's.
func (h *house) ofDisk(dir string, left func(*unix.Statfs_t) uint64, keep uint64) shortage {
	return shortage{keep: keep, left: func() uint64 {
		st := h.statfs(dir)
		return left(&st)
	}}
}

// measured writes down how long it is from the crossing of a threshold to the end of
// the container that crossed it.
func (h *house) measured(name string, s shortage) {
	h.Helper()
	h.quietly(2*time.Minute, name+" uses it up", func() error {
		left := s.left()
		return boolError(left < s.keep, "%d is left, more than %d", left, s.keep)
	})
	began := time.Now()
	h.quietly(3*time.Minute, name+" ends", func() error {
		list, err := h.runtime.Runtime().ListContainers(h.ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{"io.kubernetes.pod.name": name},
		}})
		if err != nil {
			return err
		}
		return boolError(len(list.GetContainers()) == 0, "it runs")
	})
	h.Logf("MEASURED %s: %s from crossing to its end", name, time.Since(began).Round(100*time.Millisecond))
}

// afterwards waits until the node is well again.
func (h *house) afterwards(signal string, evictions int) {
	h.Helper()
	h.eventually(time.Minute, "the eviction is counted", func() error { return h.evictionsCountedTimes(signal, evictions) })
	if onKubelet() {
		time.Sleep(15 * time.Second) // It says on the Node some time later that it was short.
	}
	h.eventually(2*time.Minute, "the node is short of nothing again", h.noPressure)
}

// evictionsCountedTimes checks kubelet_evictions.
func (h *house) evictionsCountedTimes(signal string, n int) error {
	h.Helper()
	body, err := h.nodeAPI("/metrics")
	return errors.Join(err, boolError(strings.Contains(body, fmt.Sprintf(`kubelet_evictions{eviction_signal=%q} %d`+"\n", signal, n)), "not %d of %s", n, signal))
}
