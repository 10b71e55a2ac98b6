package exposition

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// Resource returns the /metrics/resource document: CPU, memory and swap of
// the node, of the pods that run and of their containers.
// Source: https://kubernetes.io/docs/reference/instrumentation/node-metrics/
func Resource(rows []sampler.Row, pods []inventory.PresentPod, err error) Document {
	return func(emit func(*dto.MetricFamily) error) error {
		node, podRows, containers := resourceRows(rows, pods)
		for _, group := range []struct {
			families []family
			rows     []labelled
		}{{containerResources, containers}, {nodeResources, node}, {podResources, podRows}} {
			for i := range group.families {
				f := &group.families[i]
				if err := emit(f.build(group.rows)); err != nil {
					return err
				}
			}
		}
		return emit(scrapeError("resource_scrape_error", "container metrics", err))
	}
}

// resourceRows picks the rows of the node, of present pods and of their
// present containers.
func resourceRows(rows []sampler.Row, pods []inventory.PresentPod) (node, podRows, containers []labelled) {
	present := map[string]bool{}
	for _, pod := range pods {
		present[pod.Sandbox.Pod.UID] = true
		for _, c := range pod.Containers {
			present[c.ID] = true
		}
	}
	for i := range rows {
		row := &rows[i]
		namespace, name := pair("namespace", row.Pod.Namespace), pair("pod", row.Pod.Name)
		switch {
		case row.Kind == sampler.Machine:
			node = append(node, labelled{row, nil})
		case row.Kind == sampler.Pod && present[row.Pod.UID]:
			podRows = append(podRows, labelled{row, []*dto.LabelPair{namespace, name}})
		case row.Kind == sampler.Container && present[row.ID]:
			containers = append(containers, labelled{row, []*dto.LabelPair{pair("container", row.Container), namespace, name}})
		}
	}
	return node, podRows, containers
}

func cpuSeconds(r *sampler.Row) float64 { return nanoseconds(r.Stats.Cpu.Usage.Total) }
func workingSet(r *sampler.Row) float64 { return float64(r.Stats.Memory.WorkingSet) }
func swapUsed(r *sampler.Row) float64   { return float64(r.Stats.Memory.Swap) }
func swapLimit(r *sampler.Row) float64  { return float64(*r.SwapLimit) }

func swapLimited(r *sampler.Row) bool { return r.SwapLimit != nil }
func started(r *sampler.Row) bool     { return !r.StartTime.IsZero() }

func startSeconds(r *sampler.Row) float64 { return float64(r.StartTime.UnixNano()) / 1e9 }

var containerResources = []family{
	{name: "container_cpu_usage_seconds_total", help: "[STABLE] CPU time that the container used.", kind: counter, one: cpuSeconds},
	{name: "container_memory_working_set_bytes", help: "[STABLE] Working set of the container.", kind: gauge, one: workingSet},
	{name: "container_start_time_seconds", help: "[STABLE] When the container started, Unix time.", kind: gauge, when: started, one: startSeconds, untimed: true},
	{name: "container_swap_limit_bytes", help: "[ALPHA] Swap that the container may use.", kind: gauge, when: swapLimited, one: swapLimit},
	{name: "container_swap_usage_bytes", help: "[ALPHA] Swap that the container uses.", kind: gauge, one: swapUsed},
}

var nodeResources = []family{
	{name: "node_cpu_usage_seconds_total", help: "[STABLE] CPU time that the node used.", kind: counter, one: cpuSeconds},
	{name: "node_memory_working_set_bytes", help: "[STABLE] Working set of the node.", kind: gauge, one: workingSet},
	{name: "node_swap_usage_bytes", help: "[ALPHA] Swap that the node uses.", kind: gauge, one: swapUsed},
}

var podResources = []family{
	{name: "pod_cpu_usage_seconds_total", help: "[STABLE] CPU time that the pod used.", kind: counter, one: cpuSeconds},
	{name: "pod_memory_working_set_bytes", help: "[STABLE] Working set of the pod.", kind: gauge, one: workingSet},
	{name: "pod_swap_usage_bytes", help: "[ALPHA] Swap that the pod uses.", kind: gauge, one: swapUsed},
}
