package exposition

import (
	"time"

	"github.com/google/cadvisor/lib/model"
	dto "github.com/prometheus/client_model/go"

	"github.com/polylet/polylet/services/stats/internal/sampler"
)

// Machine is what the cAdvisor document says of the machine.
type Machine struct {
	// Info is its description; nil when it could not be made.
	Info *model.MachineInfo
	// Version names kernel, operating system and cAdvisor.
	Version *model.VersionInfo
	// Pressure is whether the kernel counts pressure per cgroup.
	Pressure bool
	// SandboxImage is the image of sandboxes; may be empty.
	SandboxImage string
}

// Cadvisor returns the /metrics/cadvisor document: the machine, then every
// measured cgroup with the labels container, id, image, name, namespace and
// pod, which are empty where they do not apply.
func Cadvisor(rows []sampler.Row, machine Machine, err error) Document {
	return func(emit func(*dto.MetricFamily) error) error {
		if err := emit(versionInfo(machine.Version)); err != nil {
			return err
		}
		labelledRows := containerRows(rows, machine.SandboxImage)
		for i := range cadvisorFamilies {
			f := &cadvisorFamilies[i]
			if err := emit(f.build(labelledRows)); err != nil {
				return err
			}
		}
		if machine.Pressure {
			for i := range pressureFamilies {
				f := &pressureFamilies[i]
				if err := emit(f.build(labelledRows)); err != nil {
					return err
				}
			}
		}
		if err := emit(scrapeError("container_scrape_error", "container metrics", err)); err != nil {
			return err
		}
		for _, f := range machineFamilies(machine.Info) {
			if err := emit(f); err != nil {
				return err
			}
		}
		return nil
	}
}

func scrapeError(name, what string, err error) *dto.MetricFamily {
	value := 0.0
	if err != nil {
		value = 1
	}
	return constant(name, "1 if there was an error while getting "+what+", 0 otherwise", gauge, value)
}

// containerRows gives the rows the labels that the kubelet gives them.
func containerRows(rows []sampler.Row, sandboxImage string) []labelled {
	out := make([]labelled, 0, len(rows))
	for i := range rows {
		row := &rows[i]
		image := row.Image
		if row.Kind == sampler.Sandbox {
			image = sandboxImage
		}
		out = append(out, labelled{row, []*dto.LabelPair{
			pair("container", row.Container), pair("id", row.Cgroup), pair("image", image),
			pair("name", row.ID), pair("namespace", row.Pod.Namespace), pair("pod", row.Pod.Name),
		}})
	}
	return out
}

const (
	gauge   = dto.MetricType_GAUGE
	counter = dto.MetricType_COUNTER
)

type metricType = dto.MetricType

func nanoseconds(v uint64) float64  { return float64(v) / float64(time.Second) }
func microseconds(v uint64) float64 { return float64(v) / 1e6 }

// limit shows a limit; a number that no memory has means none, shown as 0.
func limit(v uint64) float64 {
	if v > 1<<62 {
		return 0
	}
	return float64(v)
}

func hasCPU(r *sampler.Row) bool     { return r.Spec.HasCpu }
func hasQuota(r *sampler.Row) bool   { return r.Spec.Cpu.Quota != 0 }
func hasMemory(r *sampler.Row) bool  { return r.Spec.HasMemory }
func hasProcess(r *sampler.Row) bool { return r.Stats.Processes != nil }
func usedCPU(r *sampler.Row) bool    { return r.Stats.Cpu.Usage.Total > 0 }
func hasDiskIO(r *sampler.Row) bool  { return r.Stats.DiskIo != nil }
func hasNetwork(r *sampler.Row) bool { return r.Stats.Network != nil }
func hasFiles(r *sampler.Row) bool   { return len(r.Stats.Filesystem) > 0 }
func startTime(r *sampler.Row) float64 {
	if !r.Spec.StartTime.IsZero() {
		return float64(r.Spec.StartTime.Unix())
	}
	return float64(r.Spec.CreationTime.Unix())
}

func versionInfo(v *model.VersionInfo) *dto.MetricFamily {
	if v == nil {
		return nil
	}
	return constant("cadvisor_version_info", "Always 1; the labels name kernel, operating system and cAdvisor.", gauge, 1,
		pair("cadvisorRevision", v.CadvisorRevision), pair("cadvisorVersion", v.CadvisorVersion), pair("dockerVersion", v.DockerVersion),
		pair("kernelVersion", v.KernelVersion), pair("osVersion", v.ContainerOsVersion))
}
