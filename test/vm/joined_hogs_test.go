package vm

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/test/harness/said"
)

const (
	// hogRoot is a root directory of polylet's on a small disk of its own, of hogDisk MiB
	// and hogInodes inodes.
	hogRoot            = "/var/lib/hogs"
	hogDisk, hogInodes = 400, 20000
	// keepThreads is how many more threads the machine may have; a hog takes twice as many.
	keepThreads = 500
)

// TestJoinedWhoeverUsesTheNodeUpIsEvictedInTheKubeletsWords has what test/node has of
// disks, inodes, threads and limits, on cgroup v2 with systemd's driver; what the kubelet
// said there is compared.
func TestJoinedWhoeverUsesTheNodeUpIsEvictedInTheKubeletsWords(t *testing.T) {
	client := joinedCluster(t)
	if err := errors.Join(os.MkdirAll(hogRoot, 0o755), unix.Mount("hogs", hogRoot, "tmpfs", 0, fmt.Sprintf("size=%dm,nr_inodes=%d", hogDisk, hogInodes))); err != nil {
		t.Fatal(err)
	}
	running, most := threads(t)
	thresholds := fmt.Sprintf(`{memory.available: 100Mi, nodefs.available: 33%%, nodefs.inodesFree: 30%%, imagefs.available: 1%%, imagefs.inodesFree: 0%%, pid.available: "%d"}`, most-running-keepThreads)
	before := reconfigure(t, map[string]string{"evictionHard": thresholds, "volumeStatsAggPeriod": "2s"}, " --root-dir="+hogRoot)
	defer func() {
		restart(t, before)
		if err := unix.Unmount(hogRoot, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	small := scratch(bind("small", "take", "mebibytes=5", "path=/scratch/file"), "")
	create(t, client, small)
	runs(t, client, "small")

	limit := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("2Mi")}
		return p
	}
	logger := limit(bind("logger", "logs", "lines=40000"))
	roomy := bind("", "take").Spec.Containers[0]
	roomy.Name, roomy.Resources.Limits = "roomy", corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("50Mi")}
	logger.Spec.Containers = append(logger.Spec.Containers, roomy)
	create(t, client, logger, scratch(bind("volume", "take", "mebibytes=3", "path=/scratch/file"), "2Mi"),
		limit(scratch(bind("whole", "take", "mebibytes=3", "path=/scratch/file"), "")), limit(bind("layer", "take", "mebibytes=3", "path=/file")),
		limit(bind("layer-open", "take", "mebibytes=3", "path=/file", "unlink=true")))
	for _, name := range []string{"volume", "whole", "layer", "logger", "layer-open"} {
		evicted(t, client, name)
	}
	for _, hog := range []*corev1.Pod{
		scratch(bind("inodes", "take", fmt.Sprintf("files=%d", hogInodes*3/4), "path=/scratch"), ""),
		scratch(bind("disk", "take", fmt.Sprintf("mebibytes=%d", hogDisk*7/10), "path=/scratch/file"), ""),
		scratch(bind("open", "take", fmt.Sprintf("mebibytes=%d", hogDisk*7/10), "path=/scratch/file", "unlink=true"), ""),
		bind("threads", "take", fmt.Sprintf("threads=%d", 2*keepThreads)),
	} {
		create(t, client, hog)
		evicted(t, client, hog.Name)
		eventually(t, "nothing is short any more", func() error { return noPressure(t, client) })
	}
	if out, err := exec.Command("/usr/bin/polylet", "explain", "node").CombinedOutput(); err != nil || !strings.Contains(string(out), `open in files that were removed, the largest of them "/scratch/file"`) {
		t.Errorf("polylet explain node: %v, %s", err, out)
	}
	if p, err := client.CoreV1().Pods("default").Get(t.Context(), "small", metav1.GetOptions{}); err != nil || p.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod that uses little: %v, %v", p.Status.Phase, err)
	}
	goes(t, client, "small", "volume", "whole", "layer", "logger", "layer-open", "inodes", "disk", "open", "threads")
}

// evicted waits for the eviction of a pod, and compares what is said of it with what the
// kubelet said.
func evicted(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	want := ""
	for _, line := range kubelets(t, "hogs") {
		if pod, text, _ := strings.Cut(line, ": "); pod == strings.TrimSuffix(name, "-open") {
			want = text
		}
	}
	eventually(t, name+" is evicted in the kubelet's words", func() error {
		p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := said.Evicted(p, evictions(t, client)(name)); got != want {
			return fmt.Errorf("polylet: %s\nkubelet: %s", got, want)
		}
		return nil
	})
}

// kubelets is what a kubelet said in the test of test/node whose record has this name.
func kubelets(t *testing.T, record string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(payload, "evictions", record+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// evictions are the events of a pod's eviction.
func evictions(t *testing.T, client kubernetes.Interface) func(pod string) []corev1.Event {
	return func(pod string) []corev1.Event {
		t.Helper()
		return events(t, client, "reason=Evicted,involvedObject.name="+pod)
	}
}

// events are those that a selector of fields finds.
func events(t *testing.T, client kubernetes.Interface, selector string) []corev1.Event {
	t.Helper()
	list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func noPressure(t *testing.T, client kubernetes.Interface) error {
	n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if strings.HasSuffix(string(c.Type), "Pressure") && c.Status != corev1.ConditionFalse {
			return fmt.Errorf("%+v", c)
		}
	}
	return nil
}

// wantNoPressure waits until the node is short of nothing, else a pod that comes is rejected
// for good; if that takes long, the node says why.
func wantNoPressure(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	eventually(t, "the node is short of nothing", func() error {
		err := noPressure(t, client)
		if err != nil {
			out, explainErr := exec.Command("/usr/bin/polylet", "explain", "node").CombinedOutput()
			err = errors.Join(err, explainErr, errors.New(string(out)))
		}
		return err
	})
}

// scratch gives a pod a volume on the node's disk; limit may be empty.
func scratch(p *corev1.Pod, limit string) *corev1.Pod {
	source := &corev1.EmptyDirVolumeSource{}
	if limit != "" {
		q := resource.MustParse(limit)
		source.SizeLimit = &q
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: source}})
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
	return p
}

// threads are how many the machine has, and may have.
func threads(t *testing.T) (running, most int) {
	t.Helper()
	numbers := map[string]int{"/proc/sys/kernel/pid_max": 0, "/proc/sys/kernel/threads-max": 0, "/proc/loadavg": 0}
	for file := range numbers {
		data, err := os.ReadFile(file)
		text := string(data)
		if fields := strings.Fields(text); len(fields) > 3 {
			_, text, _ = strings.Cut(fields[3], "/")
		}
		n := 0
		if err == nil {
			_, err = fmt.Sscan(text, &n)
		}
		if err != nil {
			t.Fatal(err)
		}
		numbers[file] = n
	}
	return numbers["/proc/loadavg"], min(numbers["/proc/sys/kernel/pid_max"], numbers["/proc/sys/kernel/threads-max"])
}

// reconfigure starts polylet anew with other fields of the configuration, each of which is a
// line, and further arguments, and returns the files as they were. An empty field is none.
func reconfigure(t *testing.T, fields map[string]string, arguments string) (before map[string]string) {
	t.Helper()
	before = map[string]string{}
	for _, path := range []string{"/var/lib/kubelet/config.yaml", "/etc/default/kubelet"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before[path] = string(data)
	}
	var lines []string
	for line := range strings.Lines(before["/var/lib/kubelet/config.yaml"]) {
		if name, _, _ := strings.Cut(line, ":"); !slices.Contains(slices.Collect(maps.Keys(fields)), name) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	for name, value := range fields {
		if value != "" {
			lines = append(lines, name+": "+value)
		}
	}
	restart(t, map[string]string{
		"/var/lib/kubelet/config.yaml": strings.Join(lines, "\n") + "\n",
		"/etc/default/kubelet":         strings.TrimSuffix(before["/etc/default/kubelet"], "\n") + arguments + "\n",
	})
	return before
}

// restart writes polylet's files and starts it anew.
func restart(t *testing.T, files map[string]string) {
	t.Helper()
	if err := writeAll(files); err != nil {
		t.Fatal(err)
	}
	units := []string{"restart", "polylet-handout.service"}
	for _, s := range services {
		units = append(units, "polylet-"+s+".service")
	}
	if err := run("systemctl", units...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
}
