package eviction

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/polylet/polylet/internal/threshold"
	"github.com/polylet/polylet/services/nodestatus/internal/pressure"
)

func TestAnEvictionIsExplainedInTheKubeletsWords(t *testing.T) {
	greedy := pod("greedy", 0, asks("memory", "50Mi"))
	greedy.Spec.InitContainers = []v1.Container{{Name: "side"}}
	of := stats("greedy", 150*mi, 7, 30*mi, 2*mi, nil)
	side := uint64(5000)
	of.Containers = append(of.Containers, statsapi.ContainerStats{Name: "side", Memory: &statsapi.MemoryStats{WorkingSetBytes: &side}},
		statsapi.ContainerStats{Name: "debug", Memory: &statsapi.MemoryStats{WorkingSetBytes: &side}})
	modest, preparing := pod("modest", 0, asks("memory", "100Mi")), pod("preparing", 0, asks("memory", "1Gi"))
	preparing.Spec.InitContainers = []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Requests: asks("memory", "100Mi")}}}
	whole := pod("whole", 0, nil)
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: asks("memory", "1Mi")}
	for name, test := range map[string]struct {
		met         pressure.Met
		pod         *v1.Pod
		stats       *statsapi.PodStats
		message     string
		annotations map[string]string
	}{
		"memory": {
			met("memory.available", "100Mi", 0, 50*mi, 8<<30), greedy, of,
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 150Mi, request is 50Mi, has larger consumption of memory. " +
				"Container side was using 5000, request is 0, has larger consumption of memory. ",
			map[string]string{"offending_containers": "c,side", "offending_containers_usage": "150Mi,5000", "starved_resource": "memory"},
		},
		"memory of a pod with a request as a whole": {
			met("allocatableMemory.available", "1024Mi", 0, 51199*1024, 8<<30), whole, stats("whole", 2*mi, 0, 0, 0, nil),
			"The node was low on resource: memory. Threshold quantity: 1Gi, available: 51199Ki. Pod whole was using 2Mi, request is 1Mi, has larger consumption of memory. " +
				"Container c was using 2Mi, request is 0, has larger consumption of memory. ",
			map[string]string{
				"offending_pod": "whole", "offending_pod_usage": "2Mi", "offending_containers": "c", "offending_containers_usage": "2Mi", "starved_resource": "memory",
			},
		},
		"disk": {
			met("nodefs.available", "", 10, 50*mi, 1<<30), greedy, of,
			"The node was low on resource: ephemeral-storage. Threshold quantity: 107374184, available: 50Mi. Container c was using 32Mi, request is 0, has larger consumption of ephemeral-storage. ",
			map[string]string{"offending_containers": "c", "offending_containers_usage": "32Mi", "starved_resource": "ephemeral-storage"},
		},
		"inodes": {
			met("nodefs.inodesFree", "1k", 0, 500, 100000), greedy, of, "The node was low on resource: inodes. Threshold quantity: 1k, available: 500. ",
			map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "inodes"},
		},
		"processes": {
			met("pid.available", "2000", 0, 1000, 32768), greedy, of, "The node was low on resource: pids. Threshold quantity: 2k, available: 1k. ",
			map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "pids"},
		},
		"nobody is above his request": {
			met("memory.available", "100Mi", 0, 50*mi, 8<<30), modest, stats("modest", 100*mi, 0, 0, 0, nil), "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ",
			map[string]string{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "memory"},
		},
		"an init container that runs": {
			met("memory.available", "100Mi", 0, 50*mi, 8<<30), preparing, &statsapi.PodStats{Containers: []statsapi.ContainerStats{{Name: "init", Memory: of.Memory}}},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container init was using 150Mi, request is 100Mi, has larger consumption of memory. ",
			map[string]string{"offending_containers": "init", "offending_containers_usage": "150Mi", "starved_resource": "memory"},
		},
		"without figures": {
			met("memory.available", "100Mi", 0, 50*mi, 8<<30), greedy, nil, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ", map[string]string{},
		},
	} {
		if q := test.met.Text; q == "1024Mi" {
			test.met.Text = "1Gi" // As the configuration is read.
		} else if q == "2000" {
			test.met.Text = "2k"
		}
		message, annotations := Message(test.met, test.pod, test.stats)
		if diff := cmp.Diff(test.message, message); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.annotations, annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAMessageOfAPodWithVeryManyContainersIsShortEnoughToBeTaken(t *testing.T) {
	many, of := pod("many", 0, nil), stats("many", 150*mi, 7, 0, 0, nil)
	for i := range 1000 {
		c := v1.Container{Name: fmt.Sprintf("%s-%d", strings.Repeat("c", 50), i)}
		many.Spec.Containers = append(many.Spec.Containers, c)
		of.Containers = append(of.Containers, statsapi.ContainerStats{Name: c.Name, Memory: of.Memory})
	}
	message, annotations := Message(met("memory.available", "100Mi", 0, 50*mi, 8<<30), many, of)
	if len(message) > 20<<10 || !strings.HasSuffix(message, "So have more of its containers. ") || len(annotations["offending_containers"]) > 20<<10 {
		t.Errorf("%d bytes, %d of annotations", len(message), len(annotations["offending_containers"]))
	}
}

func TestAMessageNamesAContainerOnceWithAllOfItsInstances(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}, {Name: "other"}}}}
	fs := func(n uint64) *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: &n} }
	of := &statsapi.PodStats{Containers: []statsapi.ContainerStats{
		{Name: "app", Rootfs: fs(1 << 20), Logs: fs(1 << 20)},
		{Name: "other", Rootfs: fs(1 << 20), Logs: fs(0)},
		{Name: "app", Rootfs: fs(3 << 20), Logs: fs(0)},
		{Name: "app", Rootfs: fs(9 << 20)}, // Of its logs nothing is known.
	}}
	m := pressure.Met{Threshold: threshold.Threshold{Signal: "nodefs.available", Amount: threshold.Amount{Quantity: 10 << 20}, Text: "10Mi", Hard: true}, By: pressure.Signal{Name: "nodefs.available", Available: 1 << 20, Capacity: 100 << 20}}
	message, annotations := Message(m, p, of)
	if want := "Container app was using 5Mi, request is 0, has larger consumption of ephemeral-storage. Container other was using 1Mi, request is 0, has larger consumption of ephemeral-storage. "; !strings.HasSuffix(message, "1Mi. "+want) {
		t.Errorf("%s", message)
	}
	if got := annotations[offendingContainers] + " " + annotations[offendingContainersUsage]; got != "app,other 5Mi,1Mi" {
		t.Errorf("%s", got)
	}
}

func TestForWhichShortageAPodWentIsReadFromItsMessage(t *testing.T) {
	for signal, want := range map[string]pressure.Kind{
		"memory.available": pressure.Memory, "allocatableMemory.available": pressure.Memory, "pid.available": pressure.PID,
		"nodefs.available": pressure.Disk, "imagefs.inodesFree": pressure.Disk,
	} {
		message, _ := Message(met(signal, "100Mi", 0, 50*mi, 8<<30), pod("p", 0, nil), nil)
		if kind, limit := KindOf(message); kind != want || limit {
			t.Errorf("%q is of %s, a limit: %v", message, kind, limit)
		}
	}
	if kind, limit := KindOf(`Usage of EmptyDir volume "x" exceeds the limit "1Mi". `); kind != pressure.Disk || !limit {
		t.Errorf("a limit's is of %s, a limit: %v", kind, limit)
	}
}

func TestWhatWasLeftIsReadFromAMessageAsItWasWritten(t *testing.T) {
	for _, m := range []pressure.Met{
		met("memory.available", "100Mi", 0, 51199*1024, 8<<30), met("nodefs.available", "", 10, 12345, 1<<30), met("nodefs.inodesFree", "1k", 0, 1000, 100000),
	} {
		message, _ := Message(m, pod("p", 0, nil), nil)
		if got := AvailableOf(message, 7); got != m.By.Available {
			t.Errorf("%q: %d", message, got)
		}
	}
	for _, message := range []string{"", "Usage of EmptyDir volume", "low, available: much. ", "low, available: -1. "} {
		if got := AvailableOf(message, 7); got != 7 {
			t.Errorf("%q: %d", message, got)
		}
	}
}
