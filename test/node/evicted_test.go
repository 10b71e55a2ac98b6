package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// podsMemory is what all pods may use together, in MiB, and keepFree of it has to
	// be left: the node's own memory, which others use too, is not touched.
	podsMemory, keepFree = 400, 100
	// nodeDisk is the size of the disk of the node's root directory, in MiB, and a
	// third of it has to be left.
	nodeDisk = 300
)

// The words are the kubelet's: this test passes on it too, but for what only polylet
// has.
func TestPodsAreEvictedInTheKubeletsWords(t *testing.T) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	h := build(t, plan{overrides: map[string]any{
		"kubeReserved": map[string]any{"memory": fmt.Sprint(info.Totalram*uint64(info.Unit) - podsMemory<<20)},
		"evictionHard": map[string]any{
			"memory.available": fmt.Sprintf("%dMi", keepFree), "nodefs.available": "33%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"evictionPressureTransitionPeriod": "2s", "volumeStatsAggPeriod": "1s",
	}, prepare: func(h *house) {
		root := h.inst.Path("kubelet")
		h.must(os.MkdirAll(root, 0o755))
		h.must(unix.Mount("node", root, "tmpfs", 0, fmt.Sprintf("size=%dm", nodeDisk)))
	}})
	steady := app("steady", "sleep")
	steady.Spec.Containers[0].Resources = cpuAndMemory("50m", "64Mi", "50m", "64Mi")
	h.create(steady)
	h.waitReady("steady", time.Minute)
	h.play([]story{
		{"memory", evictedForMemory},
		{"nodestatus is killed", evictedWhileNodestatusDies},
		{"a volume's limit", evictedForAVolume},
		{"disk", evictedForDisk},
	})
	if p, err := h.pod("steady"); err != nil || !isReady(p) || restarts(p) > 0 {
		t.Errorf("the pod that uses what it asked for: %v, %v", err, describe(p))
	}
}

func restarts(p *corev1.Pod) (n int32) {
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

func evictedForMemory(h *house) {
	h.create(app("hog", "take", fmt.Sprintf("mebibytes=%d", podsMemory-keepFree+30)))
	began := time.Now()
	h.wantEvicted("hog", `The node was low on resource: memory\. Threshold quantity: 100Mi, available: \d+\w*\. `+
		`Container app was using \d+\w*, request is 0, has larger consumption of memory\. `, true)
	h.Logf("evicted %s after it was created", time.Since(began).Round(time.Millisecond))
	h.wantEvent("hog", map[string]string{"offending_containers": "app", "starved_resource": "memory"})
	h.eventually(time.Minute, "the Node says that it was short", func() error {
		return boolError(h.nodeEvents("EvictionThresholdMet") > 0, "no event EvictionThresholdMet")
	})
	h.eventually(time.Minute, "the eviction is counted", func() error {
		return h.evictionsCounted("allocatableMemory.available")
	})
	if onKubelet() {
		return
	}
	out, err := h.polylet("explain", "node")
	h.must(err)
	for _, want := range []string{"evicted default/hog", "allocatableMemory.available", "default/steady", "CONSIDERED"} {
		if !strings.Contains(out, want) {
			h.Errorf("polylet explain node does not say %q:\n%s", want, out)
		}
	}
	h.eventually(time.Minute, "the node is short of nothing again", func() error { return h.noPressure() })
}

// A stop that was asked for by a run of nodestatus before is not asked for of another
// pod by the next one.
func evictedWhileNodestatusDies(h *house) {
	if onKubelet() {
		h.Skip("the kubelet has no nodestatus")
	}
	bystander := app("bystander", "sleep")
	bystander.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	h.create(bystander)
	h.waitReady("bystander", time.Minute)
	h.create(app("second", "take", fmt.Sprintf("mebibytes=%d", podsMemory-keepFree+30)))
	for range 8 {
		h.killService("nodestatus")
		time.Sleep(400 * time.Millisecond) // A real process: some are killed as they begin, some as they act.
	}
	h.wantEvicted("second", `The node was low on resource: memory\. .*`, true)
	h.wantEvent("second", nil)
	h.eventually(time.Minute, "the node is short of nothing again", func() error { return h.noPressure() })
	if p, err := h.pod("bystander"); err != nil || !isReady(p) || restarts(p) > 0 {
		h.Errorf("the pod that uses what it asked for: %v, %v", err, describe(p))
	}
}

func evictedForAVolume(h *house) {
	h.create(withScratch(app("greedy", "take", "mebibytes=3", "path=/scratch/file"), "2Mi"))
	h.wantEvicted("greedy", `Usage of EmptyDir volume "scratch" exceeds the limit "2Mi"\. `, false)
	h.wantEvent("greedy", nil)
	h.eventually(time.Minute, "the eviction is counted", func() error { return h.evictionsCounted("emptydirfs.limit") })
}

func evictedForDisk(h *house) {
	h.create(withScratch(app("small", "take", "mebibytes=5", "path=/scratch/file"), ""))
	h.waitReady("small", time.Minute)
	h.create(withScratch(app("filler", "take", fmt.Sprintf("mebibytes=%d", nodeDisk*7/10), "path=/scratch/file"), ""))
	h.wantEvicted("filler", `The node was low on resource: ephemeral-storage\. Threshold quantity: \d+, available: \d+\w*\. (Container app was using \d+\w*, request is 0, has larger consumption of ephemeral-storage\. )?`, true)
	h.wantEvent("filler", map[string]string{"starved_resource": "ephemeral-storage"})
	h.eventually(time.Minute, "what it wrote is gone, and the node is short of nothing", func() error {
		left, _ := filepath.Glob(filepath.Join(h.node.RootDir, "pods", "*", "volumes", "kubernetes.io~empty-dir", "scratch", "file"))
		return errors.Join(h.noPressure(), boolError(len(left) == 1, "there are %s", left))
	})
	time.Sleep(15 * time.Second) // A real node: had it evicted another one, it would have by then.
	if p, err := h.pod("small"); err != nil || !isReady(p) {
		h.Errorf("the pod that has little on the disk: %v, %v", err, describe(p))
	}
}

// withScratch gives a pod a volume on the node's disk; limit may be empty.
func withScratch(p *corev1.Pod, limit string) *corev1.Pod {
	source := &corev1.EmptyDirVolumeSource{}
	if limit != "" {
		q := resource.MustParse(limit)
		source.SizeLimit = &q
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: source}}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	return p
}

// wantEvicted waits until a pod was evicted, and compares what is said of it.
func (h *house) wantEvicted(name, message string, disruption bool) {
	h.Helper()
	pattern := regexp.MustCompile("^" + message + "$")
	h.eventually(3*time.Minute, name+" is evicted", func() error {
		p, err := h.pod(name)
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted", "%s", describe(p))
	})
	p, err := h.pod(name)
	h.must(err)
	if !pattern.MatchString(p.Status.Message) {
		h.Errorf("message %q\nis not    %s", p.Status.Message, message)
	}
	var condition *corev1.PodCondition
	for i, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			condition = &p.Status.Conditions[i]
		}
	}
	switch {
	case (condition != nil) != disruption:
		h.Errorf("condition DisruptionTarget: %v", condition)
	case condition != nil && (condition.Status != corev1.ConditionTrue || condition.Reason != "TerminationByKubelet" || condition.Message != p.Status.Message):
		h.Errorf("condition DisruptionTarget: %v", condition)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated == nil && !onKubelet() { // Which says that later of a pod that went as it began.
			h.Errorf("container %s has not ended: %v", c.Name, c.State)
		}
	}
}

// wantEvent looks for the event of a pod's eviction and its annotations.
func (h *house) wantEvent(name string, annotations map[string]string) {
	h.Helper()
	h.eventually(time.Minute, "there is the event of "+name, func() error {
		events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=Evicted,involvedObject.name=" + name})
		if err != nil {
			return err
		}
		p, err := h.pod(name)
		if err != nil {
			return err
		}
		if len(events.Items) != 1 || events.Items[0].Type != corev1.EventTypeWarning || events.Items[0].Message != p.Status.Message {
			return fmt.Errorf("events %+v, message %q", events.Items, p.Status.Message)
		}
		for key, want := range annotations {
			if got := events.Items[0].Annotations[key]; got != want {
				return fmt.Errorf("annotation %s is %q, want %q", key, got, want)
			}
		}
		return nil
	})
}

// evictionsCounted checks kubelet_evictions.
func (h *house) evictionsCounted(signal string) error {
	h.Helper()
	body, err := h.nodeAPI("/metrics")
	if err != nil {
		return err
	}
	return boolError(strings.Contains(body, `kubelet_evictions{eviction_signal="`+signal+`"} 1`), "no line for %s", signal)
}

// noPressure checks that the Node says it is short of nothing.
func (h *house) noPressure() error {
	n, err := h.cluster.Client.CoreV1().Nodes().Get(h.ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if strings.HasSuffix(string(c.Type), "Pressure") && c.Status != corev1.ConditionFalse {
			return fmt.Errorf("%s is %s", c.Type, c.Status)
		}
	}
	return nil
}
