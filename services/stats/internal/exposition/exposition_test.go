package exposition

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/metrics"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"k8s.io/utils/clock"

	"github.com/polylet/polylet/internal/testkit/golden"
	"github.com/polylet/polylet/services/stats/internal/inventory"
	"github.com/polylet/polylet/services/stats/internal/sampler"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// rows are a machine, a pod, its sandbox and its container.
func rows() []sampler.Row {
	pod := inventory.Pod{Namespace: "shop", Name: "web-0", UID: "1-2"}
	all := []sampler.Row{
		{Target: sampler.Target{Cgroup: "/", Kind: sampler.Machine}},
		{Target: sampler.Target{Cgroup: "/kubepods/pod1-2", Kind: sampler.Pod, Pod: pod}},
		{Target: sampler.Target{Cgroup: "/kubepods/pod1-2/aaa", Kind: sampler.Sandbox, ID: "aaa", Pod: pod}},
		{Target: sampler.Target{
			Cgroup: "/kubepods/pod1-2/bbb", Kind: sampler.Container, ID: "bbb", Pod: pod, Container: "web",
			Image: "registry.local/web:1", StartTime: at.Add(-time.Minute),
		}},
	}
	for i := range all {
		n := uint64(i+1) * 1000
		faults := model.MemoryStatsMemoryData{Pgfault: n + 1, Pgmajfault: n + 2}
		all[i].SwapLimit = ptr(n + 7)
		all[i].Spec = model.ContainerSpec{
			CreationTime: at.Add(-time.Hour), StartTime: all[i].StartTime, HasCpu: true, HasMemory: true, HasProcesses: true,
			Cpu: model.CpuSpec{Limit: 2, Period: 100000, Quota: 50000 * uint64(i%2)}, Memory: model.MemorySpec{Limit: n, SwapLimit: 1 << 63, Reservation: 3},
		}
		all[i].Stats = &model.ContainerStats{
			Timestamp: at,
			Cpu: &model.CpuStats{
				Usage: model.CpuUsage{Total: n * 1e6, User: n, System: n * 2}, CFS: model.CpuCFS{Periods: 1, ThrottledPeriods: 2, ThrottledTime: 3e9, BurstsPeriods: 4, BurstTime: 5e9},
				PSI: model.PSIStats{Full: model.PSIData{Total: 11}, Some: model.PSIData{Total: 22}},
			},
			Memory: &model.MemoryStats{
				Usage: n, MaxUsage: n + 3, Cache: 1, RSS: 2, Swap: 3, MappedFile: 4, WorkingSet: n - 5, TotalActiveFile: 6, TotalInactiveFile: 7, Failcnt: 8, KernelUsage: 9,
				ContainerData: faults, HierarchicalData: faults,
			},
			DiskIo: &model.DiskIoStats{
				IoServiceBytes: []model.PerDiskStats{{Device: "/dev/vda", Major: 254, Stats: map[string]uint64{"Read": n, "Write": 2 * n, "Total": 3 * n}}},
				IoServiced:     []model.PerDiskStats{{Device: "/dev/vda", Major: 254, Stats: map[string]uint64{"Read": 1, "Write": 2}}},
			},
			Processes: &model.ProcessStats{ProcessCount: 1, FdCount: 2, SocketCount: 3, ThreadsCurrent: 4, ThreadsMax: 5, Ulimits: []model.UlimitSpec{{Name: "max_open_files", SoftLimit: 1024}}},
			OOMEvents: 1,
		}
	}
	all[0].Stats.Filesystem = []model.FsStats{{Device: "/dev/vda1", Limit: 100, Usage: 60, Inodes: 10, InodesFree: 4, ReadsCompleted: 5, IoInProgress: 1, ReadTime: 2e9, WeightedIoTime: 3e9}}
	all[2].Stats.Network = &model.NetworkStats{Interfaces: []model.InterfaceStats{{Name: "eth0", RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 5, TxPackets: 6, TxErrors: 7, TxDropped: 8}}}
	return all
}

func machineFacts() Machine {
	return Machine{
		Info: &model.MachineInfo{
			Timestamp: at, NumCores: 4, NumPhysicalCores: 2, NumSockets: 1, MemoryCapacity: 1 << 30, SwapCapacity: 1 << 20, MachineID: "m", SystemUUID: "s", BootID: "b",
			MemoryByType: map[string]*model.MemoryInfo{"DDR4": {Capacity: 1 << 30, DimmCount: 2}},
		},
		Version: &model.VersionInfo{KernelVersion: "6.1", ContainerOsVersion: "Debian", CadvisorVersion: "v0.60.6"}, Pressure: true, SandboxImage: "pause:3",
	}
}

// provider gives cAdvisor's collectors the same facts.
type provider struct{ rows []sampler.Row }

func (p provider) GetRequestedContainersInfo(string, model.RequestOptions) (map[string]*model.ContainerInfo, error) {
	out := map[string]*model.ContainerInfo{}
	for _, r := range p.rows {
		out[r.Cgroup] = &model.ContainerInfo{
			ContainerReference: model.ContainerReference{Name: r.Cgroup, Aliases: []string{r.ID}}, Spec: r.Spec, Stats: []*model.ContainerStats{r.Stats},
		}
	}
	return out, nil
}
func (provider) GetVersionInfo() (*model.VersionInfo, error) { return machineFacts().Version, nil }
func (provider) GetMachineInfo() (*model.MachineInfo, error) { return machineFacts().Info, nil }

func (p provider) labels(c *model.ContainerInfo) map[string]string {
	for _, r := range p.rows {
		if r.Cgroup == c.Name {
			image := r.Image
			if r.Kind == sampler.Sandbox {
				image = "pause:3"
			}
			return map[string]string{"id": r.Cgroup, "name": r.ID, "image": image, "container": r.Container, "pod": r.Pod.Name, "namespace": r.Pod.Namespace}
		}
	}
	return nil
}

// notServed are families of this cAdvisor that the kubelet of our version does
// not serve: they came with a later cAdvisor.
var notServed = []string{
	"container_creation_time_seconds", "container_memory_events_high_total", "container_memory_events_max_total", "container_memory_file_dirty_bytes",
	"container_memory_file_writeback_bytes", "container_memory_pgscan_total", "container_memory_pgsteal_total",
	"container_memory_workingset_refault_anon_total", "container_memory_workingset_refault_file_total",
}

// lines are all samples, one per line and without help texts, sorted. The time
// of container_last_seen is the clock's in cAdvisor, so its value is left out.
func lines(families map[string]*dto.MetricFamily) []string {
	var out []string
	for name, family := range families {
		if slices.Contains(notServed, name) {
			continue
		}
		for _, m := range family.Metric {
			value := fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			stamp := fmt.Sprint(m.GetTimestampMs())
			if name == "container_last_seen" {
				value, stamp = "", ""
			}
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out = append(out, fmt.Sprintf("%s %s {%s} %s %s", name, family.GetType(), strings.Join(labels, ","), value, stamp))
		}
	}
	slices.Sort(out)
	return out
}

func collected(t testing.TB, document Document) map[string]*dto.MetricFamily {
	t.Helper()
	out := map[string]*dto.MetricFamily{}
	if err := document(func(f *dto.MetricFamily) error {
		if f != nil {
			if out[f.GetName()] != nil {
				t.Errorf("family %s comes twice", f.GetName())
			}
			out[f.GetName()] = f
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func cadvisors(t testing.TB) map[string]*dto.MetricFamily {
	t.Helper()
	p := provider{rows()}
	included := container.MetricSet{
		container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}, container.DiskIOMetrics: {}, container.DiskUsageMetrics: {}, container.NetworkUsageMetrics: {},
		container.AppMetrics: {}, container.ProcessMetrics: {}, container.OOMMetrics: {}, container.PressureMetrics: {},
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		metrics.NewPrometheusCollector(p, p.labels, included, clock.RealClock{}, model.RequestOptions{}), metrics.NewPrometheusMachineCollector(p, included))
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range gathered {
		out[f.GetName()] = f
	}
	return out
}

func TestCadvisorsOwnCollectorMakesTheSameSamples(t *testing.T) {
	want := lines(cadvisors(t))
	got := lines(collected(t, Cadvisor(rows(), machineFacts(), nil)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("our document differs from that of cAdvisor's collector (-cAdvisor +ours):\n%s", diff)
	}
}

func TestTheDocumentsAreAsRecorded(t *testing.T) {
	pods := []inventory.PresentPod{{
		Sandbox:    inventory.Sandbox{ID: "aaa", Pod: inventory.Pod{Namespace: "shop", Name: "web-0", UID: "1-2"}, Ready: true},
		Containers: []inventory.Container{{ID: "bbb", Name: "web", Running: true}},
	}}
	for file, document := range map[string]Document{
		"testdata/cadvisor.golden": Cadvisor(rows(), machineFacts(), nil), "testdata/resource.golden": Resource(rows(), pods, nil),
	} {
		var out bytes.Buffer
		if err := Write(&out, Negotiate(""), document); err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, file, out.Bytes())
	}
}

func TestPodsThatDoNotRunAreNotInTheResourceDocument(t *testing.T) {
	families := collected(t, Resource(rows(), nil, nil))
	if families["pod_cpu_usage_seconds_total"] != nil || families["container_cpu_usage_seconds_total"] != nil {
		t.Error("a pod that does not run has samples")
	}
	if families["node_cpu_usage_seconds_total"] == nil {
		t.Error("the node has no samples")
	}
}

func TestAnErrorShowsInTheDocument(t *testing.T) {
	for name, document := range map[string]Document{
		"container_scrape_error": Cadvisor(nil, Machine{}, fmt.Errorf("no cgroups")), "resource_scrape_error": Resource(nil, nil, fmt.Errorf("no cgroups")),
	} {
		if got := collected(t, document)[name].GetMetric()[0].GetGauge().GetValue(); got != 1 {
			t.Errorf("%s is %v; want 1", name, got)
		}
	}
}

func TestTheFormatFollowsTheAcceptHeader(t *testing.T) {
	for accept, want := range map[string]struct {
		kind expfmt.FormatType
		body string
	}{
		"": {expfmt.TypeTextPlain, "# HELP"}, "text/plain;version=0.0.4": {expfmt.TypeTextPlain, "# HELP"},
		"application/openmetrics-text;version=1.0.0":                                                       {expfmt.TypeOpenMetrics, "# EOF"},
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7": {expfmt.TypeProtoDelim, "container_cpu_usage_seconds_total"},
	} {
		format := Negotiate(accept)
		if format.FormatType() != want.kind {
			t.Errorf("Accept %q gives %s; want type %d", accept, format, want.kind)
		}
		var out bytes.Buffer
		if err := Write(&out, format, Resource(rows(), nil, nil)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want.body) && want.kind != expfmt.TypeProtoDelim {
			t.Errorf("Accept %q: no %q in the document", accept, want.body)
		}
	}
}

func BenchmarkCadvisorDocumentOf60Cgroups(b *testing.B) {
	var all []sampler.Row
	for range 15 {
		all = append(all, rows()...)
	}
	b.ReportAllocs()
	for b.Loop() {
		var out bytes.Buffer
		if err := Write(&out, Negotiate(""), Cadvisor(all, machineFacts(), nil)); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTheTextIsThatOfPrometheusOwnEncoder(t *testing.T) {
	odd := rows()
	odd[3].Container, odd[3].Image = "we\"b\n\\", "ü"
	odd[1].Stats.Cpu.Usage.Total = 1 << 60
	machine := machineFacts()
	machine.Version.KernelVersion = "6.1 \"odd\""
	for name, document := range map[string]Document{
		"cadvisor": Cadvisor(odd, machine, nil), "resource": Resource(odd, nil, nil), "failed": Cadvisor(nil, Machine{}, fmt.Errorf("no")),
		"numbers": func(emit func(*dto.MetricFamily) error) error {
			for _, v := range []float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e21, 0.1} {
				if err := emit(constant("x", "a \\ b\nc \"d\"", gauge, v, pair("l", "v"))); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		var ours, theirs bytes.Buffer
		if err := Write(&ours, Negotiate(""), document); err != nil {
			t.Fatal(err)
		}
		encoder := expfmt.NewEncoder(&theirs, Negotiate(""))
		if err := document(func(f *dto.MetricFamily) error {
			if f == nil {
				return nil
			}
			return encoder.Encode(f)
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(theirs.String(), ours.String()); diff != "" {
			t.Errorf("%s (-Prometheus' +ours):\n%s", name, diff)
		}
	}
}
