package collector

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/polylet/polylet/services/stats/internal/disk"
	"github.com/polylet/polylet/services/stats/internal/inventory"
)

// Metrics shows the sizes of claims and of container logs in the main registry
// (/metrics). A scrape never waits for a directory: it shows the last figures
// and has old ones renewed.
type Metrics struct {
	collector *Collector

	logs                           *prometheus.Desc
	available, capacity, used      *prometheus.Desc
	inodes, inodesFree, inodesUsed *prometheus.Desc
	abnormal                       *prometheus.Desc
	cgroupVersion, provider        *prometheus.Desc
}

// NewMetrics returns the metrics of a collector.
func NewMetrics(c *Collector) *Metrics {
	claim := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("kubelet_volume_stats_"+name, "[ALPHA] "+help, []string{"namespace", "persistentvolumeclaim"}, nil)
	}
	return &Metrics{
		collector: c,
		logs: prometheus.NewDesc("kubelet_container_log_filesystem_used_bytes", "[ALPHA] Bytes that the container's logs take.",
			[]string{"uid", "namespace", "pod", "container"}, nil),
		available:     claim("available_bytes", "Bytes that are left in the volume."),
		capacity:      claim("capacity_bytes", "Size of the volume in bytes."),
		used:          claim("used_bytes", "Bytes that are taken in the volume."),
		inodes:        claim("inodes", "Inodes of the volume."),
		inodesFree:    claim("inodes_free", "Inodes that are free in the volume."),
		inodesUsed:    claim("inodes_used", "Inodes that are taken in the volume."),
		abnormal:      claim("health_status_abnormal", "Abnormal volume health status. The count is either 1 or 0. 1 indicates the volume is unhealthy, 0 indicates volume is healthy"),
		cgroupVersion: prometheus.NewDesc("kubelet_cgroup_version", "[ALPHA] Version of the cgroups of this node, 1 or 2.", nil, nil),
		provider:      prometheus.NewDesc("kubelet_metrics_provider", "[ALPHA] The source of the statistics of pods and containers. Always 1.", []string{"provider"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.logs, m.available, m.capacity, m.used, m.inodes, m.inodesFree, m.inodesUsed, m.abnormal, m.cgroupVersion, m.provider} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	pods := m.collector.deps.Names.View().Pods()
	now, cancel := context.WithCancel(context.Background())
	cancel() // What is not measured yet is not waited for.
	measured := m.collector.deps.Directories.Get(now, directories(pods))
	asked := m.collector.deps.Driven.Get(now, driven(pods))
	show := func(d *prometheus.Desc, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	show(m.cgroupVersion, m.collector.cfg.CgroupVersion)
	show(m.provider, 1, "cadvisor") // its model, whoever reads the files
	seen := map[[2]string]bool{}
	for _, pod := range pods {
		ref := pod.Sandbox.Pod
		for _, c := range pod.Containers {
			if logs, ok := measured[c.LogDir]; ok {
				show(m.logs, logs.Bytes, ref.UID, ref.Namespace, ref.Name, c.Name)
			}
		}
		for _, v := range pod.Volumes {
			key := [2]string{ref.Namespace, v.PVC}
			volume, ok := measured[v.HostPath]
			answer, answered := asked[disk.Volume{PodUID: ref.UID, Name: v.Name}]
			if v.Driven {
				volume, ok = answer.Measured, answered
			}
			if !ok || v.PVC == "" || seen[key] {
				continue // Two pods may share a claim; it is one series.
			}
			seen[key] = true
			m.claim(show, volume, ref, v)
			if answer.Abnormal != nil {
				show(m.abnormal, map[bool]uint64{true: 1}[*answer.Abnormal], ref.Namespace, v.PVC)
			}
		}
	}
}

func (m *Metrics) claim(show func(*prometheus.Desc, uint64, ...string), d disk.Measured, pod inventory.Pod, v inventory.Volume) {
	for desc, value := range map[*prometheus.Desc]uint64{
		m.available: d.Filesystem.Available, m.capacity: d.Filesystem.Capacity, m.used: d.Bytes,
		m.inodes: d.Filesystem.Inodes, m.inodesFree: d.Filesystem.InodesFree, m.inodesUsed: d.Inodes,
	} {
		show(desc, value, pod.Namespace, v.PVC)
	}
}
