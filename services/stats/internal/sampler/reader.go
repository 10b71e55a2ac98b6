package sampler

import (
	"context"

	"github.com/google/cadvisor/lib/container/common"
	"github.com/google/cadvisor/lib/model"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/stats/internal/cgroup"
)

// parts is what each level reads of a cgroup.
//
// Processes are counted here: who they are is needed too.
var parts = [levels]cgroup.Part{Basic: 0, Summary: cgroup.Pressure, Full: cgroup.All &^ cgroup.Processes}

// reader reads the cgroups of one measurement.
type reader struct {
	m       *Meter
	ctx     context.Context //nolint:containedctx // Lives for one measurement, for its logger.
	counts  context.Context //nolint:containedctx // How long is waited for the counts of open files.
	level   Level
	machine *model.MachineInfo
	files   []model.FsStats
}

func (m *Meter) reader(ctx, counts context.Context, level Level) *reader {
	r := &reader{m: m, ctx: ctx, counts: counts, level: level, machine: &model.MachineInfo{}}
	if level == Basic {
		return r
	}
	log := klog.FromContext(ctx)
	if info, err := m.deps.Machine.Info(); err != nil {
		log.Error(err, "Measuring without the machine's description")
	} else {
		r.machine = info
	}
	if level == Full {
		files, err := m.deps.Machine.FilesystemStats()
		if err != nil {
			log.Error(err, "Measuring without filesystems")
		}
		r.files = files
	}
	return r
}

// read measures one cgroup; false when it is gone.
func (r *reader) read(t Target) (Row, bool) {
	cgroups := r.m.deps.Cgroups
	stats, err := cgroups.Read(t.Cgroup, parts[r.level])
	if err != nil {
		return Row{}, false
	}
	row := Row{Target: t, Stats: stats}
	row.NanoCores = r.m.rates.observe(t.Cgroup, stats.Timestamp, stats.Cpu.Usage.Total)
	if r.level == Basic {
		return row, true
	}
	r.limits(&row)
	var pids []int
	if r.level == Full || t.Kind == Container || t.Kind == Sandbox {
		pids = cgroups.PIDs(t.Cgroup)
		stats.Processes = &model.ProcessStats{ProcessCount: uint64(len(pids))}
	}
	r.network(&row, pids)
	if r.level == Full {
		r.full(&row, pids)
	}
	return row, true
}

// limits sets the limits of memory and swap, and when a group was made.
func (r *reader) limits(row *Row) {
	cgroups := r.m.deps.Cgroups
	known := r.m.limits.get(row.Cgroup, func() limits {
		var out limits
		if limit := cgroups.MemoryLimit(row.Cgroup); limit < 1<<62 {
			out.memory = limit
		}
		if limit, limited := cgroups.SwapLimit(row.Cgroup); limited {
			out.swap = &limit
		}
		if row.Kind == Machine || row.Kind == Group {
			out.created = cgroups.Created(row.Cgroup)
		}
		return out
	})
	if row.StartTime.IsZero() {
		row.StartTime = known.created
	}
	row.MemoryLimit, row.SwapLimit = known.memory, known.swap
	switch row.Kind {
	case Machine:
		row.MemoryLimit, row.SwapLimit = r.machine.MemoryCapacity, &r.machine.SwapCapacity
	case Container:
		// Nothing swaps to what the machine does not have, whatever its cgroup
		// allows, or if it does not say.
		if row.SwapLimit == nil || *row.SwapLimit > r.machine.SwapCapacity {
			row.SwapLimit = &r.machine.SwapCapacity
		}
	}
}

// maxInterfaces bounds the interfaces that are shown of one sandbox: a pod that
// may make interfaces must not be able to make series without end.
const maxInterfaces = 64

// network reads the counters of the machine's and of each sandbox's network
// namespace, through a process that is in it.
func (r *reader) network(row *Row, pids []int) {
	pid := 0
	switch row.Kind {
	case Machine:
		pid = 1
	case Sandbox:
		if len(pids) == 0 {
			return
		}
		pid = pids[0]
	default:
		return
	}
	interfaces, err := r.m.deps.Proc.Network(pid)
	if err != nil || len(interfaces) == 0 {
		return // The sandbox ended, or has no network yet.
	}
	if row.Kind == Sandbox && len(interfaces) > maxInterfaces {
		interfaces = interfaces[:maxInterfaces]
	}
	row.Stats.Network = &model.NetworkStats{Interfaces: interfaces, InterfaceStats: interfaces[0]}
}

// full adds what only the cAdvisor document has.
func (r *reader) full(row *Row, pids []int) {
	cgroups, stats := r.m.deps.Cgroups, row.Stats
	known := r.m.details.get(row.Cgroup, func() details {
		return details{spec: cgroups.Spec(row.Cgroup), threadsMax: cgroups.ThreadsMax(row.Cgroup), ulimits: r.ulimits(row, pids)}
	})
	row.Spec = known.spec
	row.Spec.Image = row.Image
	if !row.StartTime.IsZero() {
		row.Spec.StartTime = row.StartTime
	}
	stats.Processes.FdCount, stats.Processes.SocketCount = r.m.opened.get(r.counts, row.Cgroup, pids)
	stats.Processes.ThreadsCurrent, stats.Processes.ThreadsMax = cgroups.Threads(row.Cgroup), known.threadsMax
	stats.Processes.Ulimits = known.ulimits
	if row.Kind == Machine {
		row.Spec.HasMemory = true
		row.Spec.Memory.Limit, row.Spec.Memory.SwapLimit = r.machine.MemoryCapacity, r.machine.SwapCapacity
		stats.Filesystem = r.files
	}
	if stats.DiskIo != nil {
		common.AssignDeviceNamesToDiskStats((*common.MachineInfoNamer)(r.machine), stats.DiskIo)
	}
}

func (r *reader) ulimits(row *Row, pids []int) []model.UlimitSpec {
	pid := 1
	if row.Kind != Machine {
		if row.ID == "" || len(pids) == 0 {
			return nil
		}
		pid = pids[0]
	}
	limit, err := r.m.deps.Proc.OpenFilesLimit(pid)
	if err != nil {
		return nil
	}
	return []model.UlimitSpec{{Name: "max_open_files", SoftLimit: limit}}
}
