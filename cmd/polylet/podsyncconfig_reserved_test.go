package main

import (
	"slices"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	podsyncservice "github.com/polylet/polylet/services/podsync"
)

func TestWhatIsReservedIsKeptFromPodsAndEnforcedWhereAskedFor(t *testing.T) {
	kube := map[string]string{"cpu": "500m", "memory": "100", "pid": "10", "ephemeral-storage": "1Gi"}
	system := map[string]string{"cpu": "1", "memory": "50"}
	for _, tc := range []struct {
		name    string
		edit    func(*kubeletv1beta1.KubeletConfiguration)
		cpu     int64
		enforce []podsyncservice.Reservation
	}{
		{"nothing is enforced", func(*kubeletv1beta1.KubeletConfiguration) {}, 1500, nil},
		{"both cgroups", func(c *kubeletv1beta1.KubeletConfiguration) {
			c.EnforceNodeAllocatable = []string{"pods", "kube-reserved", "system-reserved"}
			c.KubeReservedCgroup, c.SystemReservedCgroup = "/kube.slice", "system.slice"
		}, 1500, []podsyncservice.Reservation{
			{Kind: "system-reserved", Cgroup: "/system.slice", MilliCPU: 1000, MemoryBytes: 50},
			{Kind: "kube-reserved", Cgroup: "/kube.slice", MilliCPU: 500, MemoryBytes: 100, PIDs: 10},
		}},
		{"the processor only", func(c *kubeletv1beta1.KubeletConfiguration) {
			c.EnforceNodeAllocatable, c.KubeReservedCgroup = []string{"kube-reserved-compressible"}, "/kube.slice"
		}, 1500, []podsyncservice.Reservation{{Kind: "kube-reserved-compressible", Cgroup: "/kube.slice", MilliCPU: 500}}},
		{"whole processors stand for both", func(c *kubeletv1beta1.KubeletConfiguration) { c.ReservedSystemCPUs = "0-1,3" }, 3000, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &kubeletv1beta1.KubeletConfiguration{KubeReserved: kube, SystemReserved: system}
			tc.edit(c)
			var out podsyncservice.CgroupsConfig
			if err := reservations(&out, c); err != nil {
				t.Fatal(err)
			}
			if out.ReservedMilliCPU != tc.cpu || out.ReservedMemoryBytes != 150 || out.ReservedPIDs != 10 || !slices.Equal(out.Enforced, tc.enforce) {
				t.Errorf("%+v", out)
			}
		})
	}
	if err := reservations(&podsyncservice.CgroupsConfig{}, &kubeletv1beta1.KubeletConfiguration{ReservedSystemCPUs: "x"}); err == nil {
		t.Error("a list of processors that is none was taken")
	}
}
