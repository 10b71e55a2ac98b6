package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/test/harness/images"
)

const cgroups = "/sys/fs/cgroup"

// TestPodsHaveTheirCgroups: names of both drivers, and the numbers of cgroup v2.
func TestPodsHaveTheirCgroups(t *testing.T) {
	t.Run("with the systemd driver", func(t *testing.T) {
		checkCgroups(t, func(class, uid, container string) string {
			slice := "kubepods.slice"
			name := "kubepods"
			if class != "" {
				name += "-" + class
				slice = filepath.Join(slice, name+".slice")
			}
			return filepath.Join(slice, name+"-pod"+strings.ReplaceAll(uid, "-", "_")+".slice", "cri-containerd-"+container+".scope")
		})
	})
	useDriver(t, "cgroupfs")
	defer useDriver(t, "systemd")
	t.Run("with the cgroupfs driver", func(t *testing.T) {
		checkCgroups(t, func(class, uid, container string) string {
			return filepath.Join("kubepods", class, "pod"+uid, container)
		})
	})
}

// useDriver changes the driver of both sides, as an operator does: configuration
// and restart.
func useDriver(t *testing.T, driver string) {
	t.Helper()
	for path, text := range map[string]string{
		"/etc/containerd/config.toml":  containerdConfig(driver == "systemd", images.Pause),
		"/var/lib/kubelet/config.yaml": configuration(driver),
	} {
		if err := write(path, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := run("systemctl", "restart", "containerd.service", "polylet-podsync.service", "polylet-stats.service", "polylet-nodestatus.service"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "healthz", func() error { _, err := get(healthz); return err })
}

func checkCgroups(t *testing.T, path func(class, uid, container string) string) {
	pods := []struct {
		class string
		pod   corev1.Pod
		// want are files of the container's cgroup and of its pod's.
		container, ofPod map[string]string
	}{
		{
			"", testPod("guaranteed", "200m", "64Mi", "200m", "64Mi"),
			map[string]string{"cpu.max": "20000 100000", "cpu.weight": weight(204), "memory.max": "67108864"},
			map[string]string{"cpu.max": "20000 100000", "cpu.weight": weight(204), "memory.max": "67108864", "pids.max": "321"},
		},
		{
			"burstable", testPod("burstable", "100m", "32Mi", "", "64Mi"),
			map[string]string{"cpu.max": "max 100000", "cpu.weight": weight(102), "memory.max": "67108864"},
			map[string]string{"cpu.max": "max 100000", "cpu.weight": weight(102), "memory.max": "67108864", "pids.max": "321"},
		},
		{
			"besteffort", testPod("besteffort", "", "", "", ""),
			map[string]string{"cpu.max": "max 100000", "memory.max": "max"},
			map[string]string{"cpu.max": "max 100000", "cpu.weight": weight(2), "memory.max": "max", "pids.max": "321"},
		},
	}
	for _, p := range pods {
		apply(t, p.pod)
	}
	for _, p := range pods {
		got := ready(t, p.pod.Name)
		id := strings.TrimPrefix(got.Status.ContainerStatuses[0].ContainerID, "containerd://")
		// The cgroup carries the manifest's hash, which a static pod's UID is here.
		uid := string(got.UID)
		if hash := got.Annotations["kubernetes.io/config.hash"]; hash != "" {
			uid = hash
		}
		container := filepath.Join(cgroups, path(p.class, uid, id))
		compare(t, container, p.container)
		compare(t, filepath.Dir(container), p.ofPod)
	}
	checkStats(t, "guaranteed")
	for _, p := range pods {
		remove(t, p.pod.Name)
	}
	left, err := filepath.Glob(filepath.Join(cgroups, "kubepods*", "*pod*"))
	deeper, err2 := filepath.Glob(filepath.Join(cgroups, "kubepods*", "*", "*pod*-*"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(left, deeper...) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && !isClass(dir) {
			t.Errorf("%s is left over", dir)
		}
	}
}

// isClass tells the cgroup of a class from a pod's.
func isClass(dir string) bool {
	switch filepath.Base(dir) {
	case "burstable", "besteffort", "kubepods-burstable.slice", "kubepods-besteffort.slice":
		return true
	}
	return false
}

func compare(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	for file, value := range want {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if got := strings.TrimSpace(string(data)); err != nil || !oneOf(got, value) {
			t.Errorf("%s/%s holds %q, want %s (%v)", dir, file, got, value, err)
		}
	}
}

func oneOf(got, wanted string) bool {
	for _, w := range strings.Split(wanted, " or ") {
		if got == w {
			return true
		}
	}
	return false
}

// weight is cpu.weight for so many shares: the kubelet's linear formula, or the
// one of newer runc, which keeps the default shares at the default weight.
func weight(shares int) string {
	l := math.Log2(float64(shares))
	return fmt.Sprintf("%d or %.0f", 1+((shares-2)*9999)/262142, math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

func checkStats(t *testing.T, name string) {
	t.Helper()
	eventually(t, "statistics of "+name, func() error {
		body, err := get(readOnly + "/stats/summary")
		if err != nil {
			return err
		}
		var summary stats.Summary
		if err := json.Unmarshal(body, &summary); err != nil {
			return err
		}
		for _, p := range summary.Pods {
			if !strings.HasPrefix(p.PodRef.Name, name) {
				continue
			}
			if len(p.Containers) != 1 || p.Containers[0].Memory == nil || p.Containers[0].Memory.WorkingSetBytes == nil ||
				*p.Containers[0].Memory.WorkingSetBytes == 0 || p.Containers[0].CPU == nil || p.Containers[0].CPU.UsageCoreNanoSeconds == nil {
				return fmt.Errorf("incomplete: %+v", p)
			}
			return nil
		}
		return errors.New("the pod is not in the summary")
	})
}

// TestAContainerThatExceedsItsMemoryIsOOMKilled takes several: on a slow machine the
// runtime may miss the kernel's word on a container whose cgroup is gone so soon, and then
// says Error of it.
func TestAContainerThatExceedsItsMemoryIsOOMKilled(t *testing.T) {
	const tries = 8
	for n := range tries {
		reason := reasonOfHungry(t, fmt.Sprintf("hungry-%d", n))
		if reason == "OOMKilled" {
			return
		}
		t.Logf("the runtime says %s of what was killed", reason)
	}
	t.Errorf("none of %d is OOMKilled", tries)
}

// reasonOfHungry is why a pod failed whose container takes more memory than it may.
func reasonOfHungry(t *testing.T, name string) (reason string) {
	t.Helper()
	p := testPod(name, "", "", "", "32Mi")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Containers[0].Image, p.Spec.Containers[0].Args = images.BusyBox, nil
	p.Spec.Containers[0].Command = []string{"tail", "/dev/zero"}
	apply(t, p)
	defer remove(t, name)
	eventually(t, name+" failed", func() error {
		got, err := pod(name)
		if err != nil {
			return err
		}
		for _, c := range got.Status.ContainerStatuses {
			if c.State.Terminated != nil && c.State.Terminated.ExitCode == 137 && got.Status.Phase == corev1.PodFailed {
				reason = c.State.Terminated.Reason
				return nil
			}
		}
		return fmt.Errorf("status is %+v", got.Status)
	})
	return reason
}
