package exposition

import (
	"maps"
	"slices"

	"github.com/google/cadvisor/lib/model"
	dto "github.com/prometheus/client_model/go"
)

// machineFamilies describes the machine, with the labels boot_id, machine_id
// and system_uuid.
func machineFamilies(info *model.MachineInfo) []*dto.MetricFamily {
	const what = "machine metrics"
	if info == nil {
		return []*dto.MetricFamily{constant("machine_scrape_error", "1 if there was an error while getting "+what+", 0 otherwise.", gauge, 1)}
	}
	base := []*dto.LabelPair{pair("boot_id", info.BootID), pair("machine_id", info.MachineID), pair("system_uuid", info.SystemUUID)}
	at := milliseconds(info.Timestamp)
	var out []*dto.MetricFamily
	add := func(name, help string, values map[string]float64, label string) {
		f := family{name: name, help: help, kind: gauge}
		m := &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: &f.kind}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			labels := base
			if label != "" {
				labels = merge(base, []string{label}, []string{key})
			}
			m.Metric = append(m.Metric, f.sample(values[key], labels, at))
		}
		if len(m.Metric) > 0 {
			out = append(out, m)
		}
	}
	number := func(name, help string, value float64) { add(name, help, map[string]float64{"": value}, "") }
	number("machine_cpu_books", "CPU books.", float64(info.NumBooks))
	number("machine_cpu_cores", "Logical CPUs.", float64(info.NumCores))
	number("machine_cpu_drawers", "CPU drawers.", float64(info.NumDrawers))
	number("machine_cpu_physical_cores", "CPU cores.", float64(info.NumPhysicalCores))
	number("machine_cpu_sockets", "CPU sockets.", float64(info.NumSockets))
	capacity, count := map[string]float64{}, map[string]float64{}
	for kind, memory := range info.MemoryByType {
		capacity[kind], count[kind] = float64(memory.Capacity), float64(memory.DimmCount)
	}
	add("machine_dimm_capacity_bytes", "Capacity of the memory modules by type.", capacity, "type")
	add("machine_dimm_count", "Memory modules by type.", count, "type")
	number("machine_memory_bytes", "Memory.", float64(info.MemoryCapacity))
	number("machine_nvm_avg_power_budget_watts", "Power budget of the NVM devices.", float64(info.NVMInfo.AvgPowerBudget))
	add("machine_nvm_capacity", "NVM capacity by mode.", map[string]float64{
		"app_direct_mode": float64(info.NVMInfo.AppDirectModeCapacity), "memory_mode": float64(info.NVMInfo.MemoryModeCapacity),
	}, "mode")
	out = append(out, constant("machine_scrape_error", "1 if there was an error while getting "+what+", 0 otherwise.", gauge, 0))
	number("machine_swap_bytes", "Swap.", float64(info.SwapCapacity))
	return out
}
