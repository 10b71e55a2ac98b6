package vm

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/test/harness/hogs"
	"github.com/polylet/polylet/test/harness/said"
)

// plainMemory are the fields without what the cluster's node has of memory beyond the
// defaults, as a kubelet had it whose words are compared.
func plainMemory(fields map[string]string) map[string]string {
	for _, name := range []string{"featureGates", "memoryReservationPolicy", "memoryThrottlingFactor", "qosReserved"} {
		fields[name] = ""
	}
	return fields
}

// TestJoinedMemoryHogsOfThreePrioritiesGoInTheKubeletsOrder is test/node's, on cgroup v2 with
// systemd's driver; what the kubelet did and said there is compared.
func TestJoinedMemoryHogsOfThreePrioritiesGoInTheKubeletsOrder(t *testing.T) {
	client := joinedCluster(t)
	t.Logf("before the change of the thresholds: %v", noPressure(t, client))
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	before := reconfigure(t, plainMemory(map[string]string{
		"evictionHard": fmt.Sprintf("{memory.available: %dMi, nodefs.available: 1%%, imagefs.available: 1%%}", hogs.Keep),
		"kubeReserved": fmt.Sprintf(`{memory: "%d"}`, info.Totalram*uint64(info.Unit)-hogs.May<<20),
	}), "")
	defer restart(t, before)
	wantNoPressure(t, client)
	for name, value := range hogs.Classes() {
		if err := class(t.Context(), client, name, value); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.SchedulingV1().PriorityClasses().Delete(t.Context(), name, metav1.DeleteOptions{}) }()
	}
	all, push := hogs.OfMemory(bind)
	create(t, client, all...)
	names := []string{push.Name}
	for _, p := range all {
		names = append(names, p.Name)
		runs(t, client, p.Name)
	}
	eventually(t, "the hogs have taken what they take", func() error {
		used, err := strconv.Atoi(files(t, "kubepods.slice", "memory.current"))
		if err == nil && used < len(all)*40<<20 {
			err = fmt.Errorf("%d bytes", used)
		}
		return err
	})
	create(t, client, push)
	began := time.Now()
	eventually(t, "those that use more than they asked for are evicted", func() error {
		if gone := said.InOrder(podsOf(t, client)); len(gone) < hogs.Go {
			return fmt.Errorf("evicted so far: %v; %s bytes are used", gone, files(t, "kubepods.slice", "memory.current"))
		}
		return nil
	})
	t.Logf("from the push to the last of them: %s", time.Since(began).Round(time.Second))
	time.Sleep(20 * time.Second) // A real node: had it evicted another one, it would have by then.
	for _, name := range hogs.Stay() {
		if p := runs(t, client, name); p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: %+v", name, p.Status.ContainerStatuses)
		}
	}
	eventually(t, "all reads as the kubelet's", func() error {
		return said.Differ(said.Record(podsOf(t, client), evictions(t, client), nil), kubelets(t, "memory"))
	})
	goes(t, client, names...)
}

// podsOf are the apiserver's pods.
func podsOf(t *testing.T, client kubernetes.Interface) []corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}
