package kubeletconfig

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/cpuset"
)

func TestWhatTheKubeletRefusesIsRefused(t *testing.T) {
	unified, old := host{true, cpuset.New(0, 1)}, host{false, cpuset.New(0, 1)}
	const reserve = "systemReserved: {cpu: 100m}\n"
	for name, tc := range map[string]struct {
		on   host
		text string
		want []string // none: accepted
	}{
		"cpu policy":                       {unified, "cpuManagerPolicy: Static\n", []string{`cpuManagerPolicy: invalid value "Static": none or static`}},
		"cpu policy without a reservation": {unified, "cpuManagerPolicy: static\n", []string{"cpuManagerPolicy", "requires systemReserved.cpu + kubeReserved.cpu to be greater than zero"}},
		"cpu policy with one":              {unified, reserve + "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n", nil},
		"cpu policy with processors":       {unified, "cpuManagerPolicy: static\nreservedSystemCPUs: \"1\"\n", nil},
		"cpu options without the policy":   {unified, "cpuManagerPolicyOptions: {full-pcpus-only: \"true\"}\n", []string{"cpuManagerPolicyOptions"}},
		"cpu option of no kind":            {unified, reserve + "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {frob: \"true\"}\n", []string{`"frob"`, "full-pcpus-only"}},
		"cpu option whose gate is off":     {unified, reserve + "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: \"true\"}\n", []string{"align-by-socket", "CPUManagerPolicyAlphaOptions"}},
		"cpu option that is no bool":       {unified, reserve + "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: maybe}\n", []string{"true or false"}},
		"reconcile period":                 {unified, "cpuManagerReconcilePeriod: -1s\n", []string{"cpuManagerReconcilePeriod"}},
		"memory policy":                    {unified, "memoryManagerPolicy: static\n", []string{"memoryManagerPolicy", "None or Static"}},
		"memory that does not add up":      {unified, "memoryManagerPolicy: Static\nsystemReserved: {memory: 1Gi}\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n", []string{"reservedMemory", "1124Mi"}},
		"memory that adds up":              {unified, "memoryManagerPolicy: Static\nsystemReserved: {memory: 1Gi}\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 100Mi}}]\n", nil},
		"memory of no kind":                {unified, "reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]\n", []string{"reservedMemory[0].limits.cpu", "hugepages-"}},
		"memory of nothing":                {unified, "reservedMemory: [{numaNode: 0, limits: {memory: 0}}]\n", []string{"more than 0"}},
		"memory twice":                     {unified, "reservedMemory: [{numaNode: 0, limits: {memory: 1}}, {numaNode: 0, limits: {memory: 1}}]\n", []string{"reservedMemory[1]", "twice"}},
		"topology policy":                  {unified, "topologyManagerPolicy: best\n", []string{"topologyManagerPolicy", "single-numa-node"}},
		"topology scope":                   {unified, "topologyManagerScope: node\n", []string{"topologyManagerScope"}},
		"topology options":                 {unified, "topologyManagerPolicyOptions: {max-allowable-numa-nodes: many}\n", []string{"max-allowable-numa-nodes", "a number above 0"}},
		"topology option of no kind":       {unified, "topologyManagerPolicyOptions: {frob: \"1\"}\n", []string{`"frob"`}},
		"qos of no kind":                   {unified, "qosReserved: {cpu: 10%}\n", []string{"qosReserved", "memory"}},
		"qos without percent":              {unified, "qosReserved: {memory: \"10\"}\n", []string{"qosReserved.memory", "percentage"}},
		"processes of a pod without bound": {unified, "podPidsLimit: -7\n", nil}, // no kubelet looks at it: what is not positive is no bound
		"tracing's rate":                   {unified, "tracing: {samplingRatePerMillion: 1000001}\n", []string{"tracing.samplingRatePerMillion"}},
		"tracing's endpoint":               {unified, "tracing: {endpoint: \"http://x:1\"}\n", []string{"tracing.endpoint"}},
		"tracing":                          {unified, "tracing: {endpoint: \"x:1\", samplingRatePerMillion: 10}\n", nil},
		"curve of no kind":                 {unified, "tlsCurvePreferences: [7]\n", []string{"tlsCurvePreferences", "7"}},
		"curve twice":                      {unified, "tlsCurvePreferences: [23, 23]\n", []string{"duplicate"}},
		"curves":                           {unified, "tlsCurvePreferences: [29, 23]\n", nil},
		"the highest verbosity":            {unified, "logging: {verbosity: 2147483647}\n", nil},
		"verbosity above the highest":      {unified, "logging: {verbosity: 2147483648}\n", []string{"logging.verbosity", "0 to 2147483647"}},
		"sysctls of a pod's own":           {unified, "allowedUnsafeSysctls: [net.core.somaxconn, \"net.ipv6.*\", net/ipv4/conf/eth0.1/forwarding, \"kernel.shm*\", \"kernel.msg*\", kernel.sem, \"fs.mqueue.*\"]\n", nil},
		"sysctls of the whole machine":     {unified, "allowedUnsafeSysctls: [\"vm.*\"]\n", []string{"allowedUnsafeSysctls[0]", "vm.*", "not known to be namespaced"}},
		"sysctls of every kind":            {unified, "allowedUnsafeSysctls: [\"*\"]\n", []string{"allowedUnsafeSysctls[0]"}},
		"a sysctl nearly a pod's own":      {unified, "allowedUnsafeSysctls: [net.core.somaxconn, kernel.shmmaxi]\n", []string{"allowedUnsafeSysctls[1]"}},
		"a sysctl that is none":            {unified, "allowedUnsafeSysctls: [\"net.*.forwarding\"]\n", []string{"allowedUnsafeSysctls[0]", "253"}},
		"flush frequency":                  {unified, "logging: {flushFrequency: -1s}\n", []string{"logging.flushFrequency"}},
		"hidden metrics of long ago":       {unified, "showHiddenMetricsForVersion: \"1.20\"\n", []string{"showHiddenMetricsForVersion", "1.35"}},
		"hidden metrics":                   {unified, "showHiddenMetricsForVersion: \"1.35\"\n", nil},
		"negative shutdown":                {unified, "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]\n", []string{"shutdownGracePeriodByPodPriority[0]"}},
		"two kinds of shutdown":            {unified, "shutdownGracePeriod: 10s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]\n", []string{"shutdownGracePeriodByPodPriority"}},
		"reclaim of no signal":             {unified, "evictionMinimumReclaim: {memory.used: 1Gi}\n", []string{"evictionMinimumReclaim", "memory.used"}},
		"threshold of no signal":           {unified, "evictionHard: {memory: 1Gi}\n", []string{"evictionHard", `"memory"`}},
		"threshold above all":              {unified, "evictionHard: {nodefs.available: 101%}\n", []string{"evictionHard.nodefs.available"}},
		"oom kills one by one on v1":       {old, "failCgroupV1: false\nsingleProcessOOMKill: false\n", []string{"singleProcessOOMKill", "must not be explicitly set to false when using cgroup v1"}},
		"oom kills together on v2":         {unified, "singleProcessOOMKill: false\n", nil},
		"swap on v1":                       {old, "failCgroupV1: false\nmemorySwap: {swapBehavior: LimitedSwap}\n", []string{"memorySwap.swapBehavior", "only supported with cgroup v2"}},
		"swap on v2":                       {unified, "memorySwap: {swapBehavior: LimitedSwap}\n", nil},
		"reserved processors":              {unified, "reservedSystemCPUs: 0-2\n", []string{"reservedSystemCPUs", "not a subset of the online processors, 0-1"}},
		"reserved nonsense":                {unified, "reservedSystemCPUs: one\n", []string{"reservedSystemCPUs", "0-1,4"}},
		"period without its gate":          {unified, "cpuCFSQuotaPeriod: 10ms\nfeatureGates: {CustomCPUCFSQuotaPeriod: false}\n", []string{"cpuCFSQuotaPeriod", "requires the feature gate CustomCPUCFSQuotaPeriod"}},
		"certificates without their gate":  {unified, "serverTLSBootstrap: true\nfeatureGates: {RotateKubeletServerCertificate: false}\n", []string{"serverTLSBootstrap", "RotateKubeletServerCertificate"}},
		"shutdown without its gate":        {unified, "shutdownGracePeriod: 10s\nfeatureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}\n", []string{"shutdownGracePeriod", "GracefulNodeShutdown"}},
		"priorities without their gate":    {unified, "shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 1}]\nfeatureGates: {GracefulNodeShutdownBasedOnPodPriority: false}\n", []string{"GracefulNodeShutdownBasedOnPodPriority"}},
		"tiers without their gate":         {unified, "memoryReservationPolicy: TieredReservation\n", []string{"memoryReservationPolicy", "MemoryQoS"}},
		"tiers of no kind":                 {unified, "memoryReservationPolicy: Some\n", []string{"memoryReservationPolicy", "TieredReservation"}},
		"throttling":                       {unified, "memoryThrottlingFactor: 1.5\n", []string{"memoryThrottlingFactor"}},
		"taint's key":                      {unified, "registerWithTaints: [{key: \"a b\", effect: NoSchedule}]\n", []string{"registerWithTaints[0]"}},
		"taint's value":                    {unified, "registerWithTaints: [{key: a, value: \"b c\", effect: NoSchedule}]\n", []string{"registerWithTaints[0]"}},
		"taint's effect":                   {unified, "registerWithTaints: [{key: a, effect: Never}]\n", []string{"registerWithTaints[0].effect", "PreferNoSchedule"}},
		"taints":                           {unified, "registerWithTaints: [{key: a.b/c, value: d, effect: NoExecute}]\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadOn(tc.on, []string{"--config=" + write(t, t.TempDir(), "c.yaml", header+tc.text)}, logr.Discard())
			if len(tc.want) == 0 && err != nil {
				t.Fatalf("refused: %v", err)
			}
			if len(tc.want) > 0 && err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
		})
	}
}
