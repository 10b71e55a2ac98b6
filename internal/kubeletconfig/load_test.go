package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustLoad(t *testing.T, args ...string) *Loaded {
	t.Helper()
	l, err := load(append([]string{"--hostname-override=Node-1 "}, args...), logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestEachFlagSetsItsField(t *testing.T) {
	for _, tc := range []struct {
		flag string
		want any
		get  func(*Loaded) any
	}{
		// what kubeadm writes
		{"--bootstrap-kubeconfig=/b", "/b", func(l *Loaded) any { return l.Flags.BootstrapKubeconfig }},
		{"--kubeconfig=/k", "/k", func(l *Loaded) any { return l.Flags.Kubeconfig }},
		{"--node-ip=10.0.0.1,fd00::1", "10.0.0.1,fd00::1", func(l *Loaded) any { return l.Flags.NodeIP }},
		{"--cloud-provider=external", "external", func(l *Loaded) any { return l.Flags.CloudProvider }},
		{"--register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule,a=b:NoExecute", "node-role.kubernetes.io/control-plane|:NoSchedule|a=b:NoExecute",
			func(l *Loaded) any {
				a, b := l.Config.RegisterWithTaints[0], l.Config.RegisterWithTaints[1]
				return a.Key + "|" + a.Value + ":" + string(a.Effect) + "|" + b.ToString()
			}},
		{"--container-runtime-endpoint=unix:///x", "unix:///x", func(l *Loaded) any { return l.Config.ContainerRuntimeEndpoint }},
		{"--pod-manifest-path=/m", "/m", func(l *Loaded) any { return l.Config.StaticPodPath }},
		{"--cgroup-driver=systemd", "systemd", func(l *Loaded) any { return l.Config.CgroupDriver }},
		// others
		{"--node-labels=a=b,node.kubernetes.io/x=y", "y", func(l *Loaded) any { return l.Flags.NodeLabels["node.kubernetes.io/x"] }},
		{"--root_dir=/r", "/r", func(l *Loaded) any { return l.Flags.RootDir }},
		{"--cert-dir=/c", "/c", func(l *Loaded) any { return l.Flags.CertDir }},
		{"--housekeeping-interval=3s", 3 * time.Second, func(l *Loaded) any { return l.Flags.HousekeepingInterval }},
		{"--socket-dir=/s", "/s", func(l *Loaded) any { return l.Flags.SocketDir }},
		{"--anonymous-auth=false", false, func(l *Loaded) any { return *l.Config.Authentication.Anonymous.Enabled }},
		{"--authentication-token-webhook", true, func(l *Loaded) any { return *l.Config.Authentication.Webhook.Enabled }},
		{"--authorization-mode=Webhook", kubeletv1beta1.KubeletAuthorizationModeWebhook, func(l *Loaded) any { return l.Config.Authorization.Mode }},
		{"--client-ca-file=/ca", "/ca", func(l *Loaded) any { return l.Config.Authentication.X509.ClientCAFile }},
		{"--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384", []string{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"}, func(l *Loaded) any { return l.Config.TLSCipherSuites }},
		{"--rotate-server-certificates", true, func(l *Loaded) any { return l.Config.ServerTLSBootstrap }},
		{"--cluster-dns=10.96.0.10", []string{"10.96.0.10"}, func(l *Loaded) any { return l.Config.ClusterDNS }},
		{"--resolv-conf=", "", func(l *Loaded) any { return *l.Config.ResolverConfig }},
		{"--max-pods=7", int32(7), func(l *Loaded) any { return l.Config.MaxPods }},
		{"--pod-max-pids=99", int64(99), func(l *Loaded) any { return *l.Config.PodPidsLimit }},
		{"--read-only-port=0", int32(0), func(l *Loaded) any { return l.Config.ReadOnlyPort }},
		{"--healthz-port=0", int32(0), func(l *Loaded) any { return *l.Config.HealthzPort }},
		{"--eviction-hard=memory.available<50Mi,nodefs.available<5%", map[string]string{"memory.available": "50Mi", "nodefs.available": "5%"}, func(l *Loaded) any { return l.Config.EvictionHard }},
		{"--eviction-minimum-reclaim=nodefs.available=1Gi", map[string]string{"nodefs.available": "1Gi"}, func(l *Loaded) any { return l.Config.EvictionMinimumReclaim }},
		{"--kube-reserved=cpu=100m,memory=1Gi", map[string]string{"cpu": "100m", "memory": "1Gi"}, func(l *Loaded) any { return l.Config.KubeReserved }},
		{"--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Mi;1:memory=2Gi", int32(1), func(l *Loaded) any { return l.Config.ReservedMemory[1].NumaNode }},
		{"--manifest-url-header=X-A:1,X-A:2", []string{"1", "2"}, func(l *Loaded) any { return l.Config.StaticPodURLHeader["X-A"] }},
		{"--fail-swap-on=false", false, func(l *Loaded) any { return *l.Config.FailSwapOn }},
		{"--fail-cgroupv1=false", false, func(l *Loaded) any { return *l.Config.FailCgroupV1 }},
		{"--seccomp-default", true, func(l *Loaded) any { return *l.Config.SeccompDefault }},
		{"--feature-gates=PodsAPI=true", true, func(l *Loaded) any { return l.FeatureEnabled("PodsAPI") }},
		{"-v=4", uint32(4), func(l *Loaded) any { return uint32(l.Config.Logging.Verbosity) }},
		{"--logging-format=json", "json", func(l *Loaded) any { return l.Config.Logging.Format }},
		{"--storage-driver-db=ignored", "/run/polylet", func(l *Loaded) any { return l.Flags.SocketDir }},
	} {
		t.Run(tc.flag, func(t *testing.T) {
			if got := tc.get(mustLoad(t, tc.flag)); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("without a file: %#v, want %#v", got, tc.want)
			}
			// the same over a file that says something else
			file := write(t, t.TempDir(), "c.yaml", header+"maxPods: 1\ncgroupDriver: cgroupfs\ncontainerRuntimeEndpoint: unix:///other\nevictionHard: {memory.available: 1Mi}\n")
			if got := tc.get(mustLoad(t, "--config="+file, tc.flag)); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("over a file: %#v, want %#v", got, tc.want)
			}
		})
	}
}

// TestEveryFieldThatNeedsADefaultHasOne guards against fields that come with a
// new version of the type: a nil pointer or empty scalar here is on purpose.
func TestEveryFieldThatNeedsADefaultHasOne(t *testing.T) {
	empty := map[string]bool{}
	for _, name := range strings.Fields(`StaticPodPath StaticPodURL StaticPodURLHeader ReadOnlyPort TLSCertFile
		TLSPrivateKeyFile TLSCipherSuites TLSCurvePreferences TLSMinVersion RotateCertificates ServerTLSBootstrap
		PreloadedImagesVerificationAllowlist EnableContentionProfiling ClusterDomain ClusterDNS ImageMaximumGCAge
		KubeletCgroups SystemCgroups CgroupRoot CPUManagerPolicyOptions TopologyManagerPolicyOptions QOSReserved
		PodCIDR RunOnce MaxParallelImagePulls EvictionSoft EvictionSoftGracePeriod EvictionMaxPodGracePeriod
		EvictionMinimumReclaim PodsPerCore ProtectKernelDefaults FeatureGates MemorySwap SystemReserved KubeReserved
		ReservedSystemCPUs ShowHiddenMetricsForVersion SystemReservedCgroup KubeReservedCgroup AllowedUnsafeSysctls
		ProviderID KernelMemcgNotification ShutdownGracePeriod ShutdownGracePeriodCriticalPods
		ShutdownGracePeriodByPodPriority ReservedMemory RegisterWithTaints Tracing ImageServiceEndpoint`) {
		empty[name] = true
	}
	file := write(t, t.TempDir(), "c.yaml", header)
	v := reflect.ValueOf(*mustLoad(t, "--config="+file).Config)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() != empty[name] {
			t.Errorf("field %s: zero is %v, want %v", name, v.Field(i).IsZero(), empty[name])
		}
	}
}

func TestDefaultsDependOnWhetherThereIsAFile(t *testing.T) {
	flagsOnly := mustLoad(t).Config
	file := write(t, t.TempDir(), "c.yaml", header)
	fromFile := mustLoad(t, "--config="+file).Config
	for _, tc := range []struct {
		name            string
		legacy, current any
		get             func(*kubeletv1beta1.KubeletConfiguration) any
	}{
		{"readOnlyPort", int32(10255), int32(0), func(c *kubeletv1beta1.KubeletConfiguration) any { return c.ReadOnlyPort }},
		{"anonymous", true, false, func(c *kubeletv1beta1.KubeletConfiguration) any { return *c.Authentication.Anonymous.Enabled }},
		{"webhook", false, true, func(c *kubeletv1beta1.KubeletConfiguration) any { return *c.Authentication.Webhook.Enabled }},
		{"authorization", "AlwaysAllow", "Webhook", func(c *kubeletv1beta1.KubeletConfiguration) any { return string(c.Authorization.Mode) }},
		{"eviction", 0, 5, func(c *kubeletv1beta1.KubeletConfiguration) any { return len(c.EvictionHard) }},
		{"reportFrequency", 5 * time.Minute, 5 * time.Minute, func(c *kubeletv1beta1.KubeletConfiguration) any { return c.NodeStatusReportFrequency.Duration }},
	} {
		if got := tc.get(flagsOnly); got != tc.legacy {
			t.Errorf("%s without a file: %v, want %v", tc.name, got, tc.legacy)
		}
		if got := tc.get(fromFile); got != tc.current {
			t.Errorf("%s with a file: %v, want %v", tc.name, got, tc.current)
		}
	}
}

func TestFieldsThatSteerOtherDefaults(t *testing.T) {
	file := write(t, t.TempDir(), "c.yaml", header+"nodeStatusUpdateFrequency: 7s\nmaxParallelImagePulls: 4\n"+
		"mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 1Mi}\n")
	c := mustLoad(t, "--config="+file).Config
	if c.NodeStatusReportFrequency.Duration != 7*time.Second {
		t.Errorf("report frequency %v", c.NodeStatusReportFrequency)
	}
	if *c.SerializeImagePulls {
		t.Error("pulls are serialized though four may go on at once")
	}
	if c.EvictionHard["memory.available"] != "1Mi" || c.EvictionHard["nodefs.available"] != "10%" {
		t.Errorf("eviction %v", c.EvictionHard)
	}
}

func TestRelativePathsAreSeenFromTheFile(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "c.yaml", header+"staticPodPath: manifests\nauthentication: {x509: {clientCAFile: pki/ca.crt}}\nresolvConf: /abs\n")
	c := mustLoad(t, "--config="+file).Config
	if c.StaticPodPath != filepath.Join(dir, "manifests") || c.Authentication.X509.ClientCAFile != filepath.Join(dir, "pki/ca.crt") || *c.ResolverConfig != "/abs" {
		t.Errorf("%q %q %q", c.StaticPodPath, c.Authentication.X509.ClientCAFile, *c.ResolverConfig)
	}
}

func TestUnknownAndDuplicateFieldsAreAWarning(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	file := write(t, t.TempDir(), "c.yaml", header+"maxPods: 5\nmaxPods: 6\nfrobnicate: true\nMaxPods: 9\n")
	l, err := load([]string{"--config=" + file}, log)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(lines, "\n")
	if l.Config.MaxPods != 6 || !strings.Contains(all, "frobnicate") || !strings.Contains(all, `maxPods`) || !strings.Contains(all, file) {
		t.Errorf("maxPods %d, log %s", l.Config.MaxPods, all)
	}
}

func TestDropInsMergeInOrderAndFlagsGoLast(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "c.yaml", header+"maxPods: 1\nclusterDNS: [1.1.1.1, 2.2.2.2]\nevictionHard: {memory.available: 1Mi, nodefs.available: 2%}\nfeatureGates: {PodsAPI: true}\nport: 1000\n")
	write(t, dir, "d/10.conf", header+"maxPods: 2\nclusterDNS: [3.3.3.3]\nevictionHard: {memory.available: 9Mi}\n")
	write(t, dir, "d/20-sub/x.conf", header+"maxPods: 3\nevictionHard: {nodefs.available: null}\nport: null\n")
	write(t, dir, "d/30.yaml", "this is not read")
	l := mustLoad(t, "--config="+file, "--config-dir="+filepath.Join(dir, "d"), "--feature-gates=ImageVolumeWithDigest=true", "--healthz-port=1")
	c := l.Config
	if c.MaxPods != 3 || !reflect.DeepEqual(c.ClusterDNS, []string{"3.3.3.3"}) || c.Port != 10250 || *c.HealthzPort != 1 {
		t.Errorf("maxPods %d dns %v port %d healthz %d", c.MaxPods, c.ClusterDNS, c.Port, *c.HealthzPort)
	}
	if !reflect.DeepEqual(c.EvictionHard, map[string]string{"memory.available": "9Mi"}) {
		t.Errorf("eviction %v", c.EvictionHard)
	}
	if !l.FeatureEnabled("PodsAPI") || !l.FeatureEnabled("ImageVolumeWithDigest") {
		t.Error("gates of file and flag are not united")
	}
	if got := mustLoad(t, "--config="+file, "--config-dir="+filepath.Join(dir, "d"), "--max-pods=4").Config.MaxPods; got != 4 {
		t.Errorf("a flag does not go before drop-ins: %d", got)
	}
}

func TestWhatAFileLeavesEmptyStaysEmptyUnderADropIn(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "c.yaml", header+"evictionHard: {}\nenforceNodeAllocatable: []\n")
	write(t, dir, "other/10.conf", header+"maxPods: 2\n")
	write(t, dir, "default/10.conf", header+"evictionHard: null\nenforceNodeAllocatable: null\n")
	write(t, dir, "own/10.conf", header+"evictionHard: {memory.available: 1Mi}\nenforceNodeAllocatable: [pods]\n")
	write(t, dir, "emptied/10.conf", header+"enforceNodeAllocatable: [pods]\n")
	write(t, dir, "emptied/20.conf", header+"enforceNodeAllocatable: []\n")
	write(t, dir, "emptied/30.conf", header+"maxPods: 2\n")
	standing := mustLoad(t, "--config="+write(t, dir, "plain.yaml", header)).Config
	for name, want := range map[string]struct {
		hard    map[string]string
		enforce []string
	}{
		"other":   {map[string]string{}, []string{}},
		"default": {standing.EvictionHard, standing.EnforceNodeAllocatable},
		"own":     {map[string]string{"memory.available": "1Mi"}, []string{"pods"}},
		"emptied": {map[string]string{}, []string{}},
	} {
		c := mustLoad(t, "--config="+file, "--config-dir="+filepath.Join(dir, name)).Config
		if !reflect.DeepEqual(c.EvictionHard, want.hard) || !reflect.DeepEqual(c.EnforceNodeAllocatable, want.enforce) {
			t.Errorf("%s: evictionHard %v, enforceNodeAllocatable %v, want %v", name, c.EvictionHard, c.EnforceNodeAllocatable, want)
		}
	}
}

func TestWhatIsWrongIsNamedWithItsMend(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		file string
		want []string
	}{
		"removed flag":      {args: []string{"--pod-infra-container-image=x"}, want: []string{"--pod-infra-container-image", "sandbox image"}},
		"removed cni flag":  {args: []string{"--cni-anything=x"}, want: []string{"--cni-anything", "remove it"}},
		"unknown flag":      {args: []string{"--frob=1"}, want: []string{"--frob", "--help"}},
		"positional":        {args: []string{"frob"}, want: []string{`unknown command "frob"`}},
		"cloud provider":    {args: []string{"--cloud-provider=aws"}, want: []string{"--cloud-provider", "aws", "external"}},
		"foreign label":     {args: []string{"--node-labels=node-role.kubernetes.io/x="}, want: []string{"node-role.kubernetes.io/x", "may not set"}},
		"two v4":            {args: []string{"--node-ip=1.1.1.1,2.2.2.2"}, want: []string{"--node-ip", "IPv6"}},
		"unknown gate":      {args: []string{"--feature-gates=Frob=true"}, want: []string{"unrecognized feature gate: Frob"}},
		"locked gate":       {args: []string{"--feature-gates=NodeSwap=false"}, want: []string{"NodeSwap", "locked to true"}},
		"gate needs":        {args: []string{"--feature-gates=GracefulNodeShutdown=false"}, want: []string{"GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: [GracefulNodeShutdown]"}},
		"bad taint":         {args: []string{"--register-with-taints=a=b:Never"}, want: []string{"a=b:Never", "NoSchedule"}},
		"missing file":      {args: []string{"--config=" + dir + "/none"}, want: []string{dir + "/none", "no such file"}},
		"empty file":        {file: " \n", want: []string{"empty"}},
		"other kind":        {file: "apiVersion: v1\nkind: Pod\n", want: []string{`kind "Pod"`, "KubeletConfiguration"}},
		"not yaml":          {file: "a: [", want: []string{"neither YAML nor JSON"}},
		"wrong type":        {file: header + "maxPods: many\n", want: []string{"maxPods"}},
		"several at once":   {file: header + "port: 70000\nmaxPods: -1\ncgroupDriver: x\n", want: []string{"port: invalid value 70000", "maxPods: invalid value -1", `cgroupDriver: invalid value "x": cgroupfs or systemd`}},
		"gc thresholds":     {file: header + "imageGCLowThresholdPercent: 90\n", want: []string{"imageGCLowThresholdPercent"}},
		"soft no grace":     {file: header + "evictionSoft: {memory.available: 1Gi}\n", want: []string{"evictionSoftGracePeriod.memory.available"}},
		"plain 0":           {file: header + "evictionHard: {memory.available: '0'}\nevictionSoft: {pid.available: 0Mi}\nevictionSoftGracePeriod: {pid.available: 1m}\n", want: []string{"evictionHard.memory.available", "0% switches the signal off", "evictionSoft.pid.available"}},
		"cipher suite":      {file: header + "tlsCipherSuites: [TLS_OF_NOBODY]\n", want: []string{"tlsCipherSuites", "TLS_OF_NOBODY"}},
		"no frequency":      {file: header + "nodeStatusUpdateFrequency: -1s\nnodeStatusReportFrequency: -2s\n", want: []string{"nodeStatusUpdateFrequency", "nodeStatusReportFrequency", "more than 0"}},
		"none with others":  {file: header + "enforceNodeAllocatable: [none, pods]\n", want: []string{"none stands alone"}},
		"both kinds of one": {file: header + "enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /k\n", want: []string{"kube-reserved or kube-reserved-compressible, not both"}},
		"reserved twice":    {file: header + "reservedSystemCPUs: \"0\"\nkubeReservedCgroup: /k\n", want: []string{"reservedSystemCPUs"}},
		"reserved no group": {file: header + "enforceNodeAllocatable: [pods, kube-reserved]\n", want: []string{"kubeReservedCgroup"}},
		"run once":          {file: header + "runOnce: true\n", want: []string{"runOnce"}},
		"plugins nowhere":   {args: []string{"--image-credential-provider-config=/x"}, want: []string{"--image-credential-provider-bin-dir"}},
		"pull policy":       {file: header + "imagePullCredentialsVerificationPolicy: Sometimes\n", want: []string{"imagePullCredentialsVerificationPolicy", "AlwaysVerify"}},
		"list for nothing":  {file: header + "preloadedImagesVerificationAllowlist: [a]\n", want: []string{"preloadedImagesVerificationAllowlist", "NeverVerifyAllowlistedImages"}},
		"tag in the list": {
			file: header + "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ['reg:5000/*', 'reg:5000/a', 'reg/a:1', 'reg/*/a']\n",
			want: []string{"preloadedImagesVerificationAllowlist[2]", "preloadedImagesVerificationAllowlist[3]"},
		},
		"one tls file": {file: header + "tlsCertFile: /x\n", want: []string{"tlsCertFile", "tlsPrivateKeyFile"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := tc.args
			if tc.file != "" {
				args = append(args, "--config="+write(t, t.TempDir(), "c.yaml", tc.file))
			}
			_, err := load(args, logr.Discard())
			if err == nil {
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

func TestHelpAndVersionAreAnswers(t *testing.T) {
	for flag, want := range map[string]error{"--help": ErrHelp, "-h": ErrHelp, "--version": ErrVersion, "--version=raw": ErrVersion} {
		if _, err := load([]string{flag}, logr.Discard()); !errors.Is(err, want) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	var b strings.Builder
	Usage(&b)
	for _, want := range []string{"--kubeconfig", "--socket-dir", "--eviction-hard", "--logging-format"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("usage lacks %s", want)
		}
	}
}

func TestNodeNameAndMode(t *testing.T) {
	l := mustLoad(t)
	if l.NodeName != "node-1" || !l.Standalone {
		t.Errorf("name %q standalone %v", l.NodeName, l.Standalone)
	}
	if mustLoad(t, "--kubeconfig=/k").Standalone {
		t.Error("standalone with a kubeconfig")
	}
}

func TestConfigzShowsWhatIsInEffectButNoHeaders(t *testing.T) {
	l := mustLoad(t, "--max-pods=7", "--manifest-url-header=Authorization:secret")
	var got map[string]any
	if err := json.Unmarshal(l.ConfigzJSON(), &got); err != nil {
		t.Fatal(err)
	}
	if got["kind"] != "KubeletConfiguration" || got["maxPods"] != float64(7) || got["syncFrequency"] != "1m0s" {
		t.Errorf("%v", got)
	}
	if strings.Contains(string(l.ConfigzJSON()), "secret") {
		t.Error("a header's value is shown")
	}
	if !strings.Contains(string(l.SecretConfigzJSON()), `"Authorization":["secret"]`) {
		t.Errorf("what /configz shows has no header: %s", l.SecretConfigzJSON())
	}
	if two := mustLoad(t, "--manifest-url-header=A:1,A:2"); !strings.Contains(string(two.ConfigzJSON()), `{"A":["\u003cmasked\u003e","\u003cmasked\u003e"]}`) {
		t.Errorf("two values of a header are %s", two.ConfigzJSON())
	}
}

// People write the largest integer for "no limit".
func TestACopyHasLargeIntegersAsTheyAre(t *testing.T) {
	for _, number := range []string{"9223372036854775807", "9007199254740993"} {
		dir := t.TempDir()
		loaded := mustLoad(t, "--config="+write(t, dir, "c.yaml", header+"podPidsLimit: "+number+"\nmaxOpenFiles: "+number+"\n"))
		if got := fmt.Sprint(*loaded.Config.PodPidsLimit, loaded.Config.MaxOpenFiles); got != number+" "+number {
			t.Fatalf("the file says %s and the configuration %s", number, got)
		}
		again := mustLoad(t, "--config="+write(t, dir, "copy.json", string(loaded.CopyJSON())))
		if got, want := string(again.ConfigzJSON()), string(loaded.ConfigzJSON()); got != want {
			t.Errorf("the copy says\n%s\nand the original\n%s", got, want)
		}
	}
}

func TestServingFilesAndUsers(t *testing.T) {
	l := mustLoad(t, "--cert-dir=/c", "--gateway-user=12")
	if cert, key := l.ServingFiles(); cert != "/c/kubelet.crt" || key != "/c/kubelet.key" {
		t.Errorf("%s %s", cert, key)
	}
	l.Config.ServerTLSBootstrap = true
	if cert, key := l.ServingFiles(); cert != "/c/kubelet-server-current.pem" || key != cert || !l.WaitsForServing() {
		t.Errorf("from the apiserver: %s %s", cert, key)
	}
	l.Config.TLSCertFile, l.Config.TLSPrivateKeyFile = "/own.crt", "/own.key"
	if cert, key := l.ServingFiles(); cert != "/own.crt" || key != "/own.key" || l.WaitsForServing() {
		t.Errorf("what is configured goes before: %s %s", cert, key)
	}
	if l.ServiceUser("gateway") != "12" || l.ServiceUser("podsync") != "root" {
		t.Errorf("users %s %s", l.ServiceUser("gateway"), l.ServiceUser("podsync"))
	}
}

func TestNoTwoServicesShareAUser(t *testing.T) {
	_, err := load([]string{"--gateway-user=12", "--probes-user=13", "--nodestatus-user=12"}, logr.Discard())
	if err == nil || !strings.Contains(err.Error(), "--gateway-user and --nodestatus-user are both 12") {
		t.Errorf("err = %v", err)
	}
	// Where nobody is named and no user is there, no number is made up: those
	// that come to mind are of images too.
	l := mustLoad(t, "--stats-user=root", "--nodestatus-user=root")
	for _, service := range []string{"gateway", "probes"} {
		if name := l.ServiceUser(service); name != "" && name != "polylet-"+service {
			t.Errorf("%s runs as %q", service, name)
		}
	}
}

func TestFlagsAreShownAsTheyWereGivenWithoutSecrets(t *testing.T) {
	l := mustLoad(t, "--hostname-override=N", "--v=3", "--manifest-url-header=Authorization:secret", "--compatible-stream-verbs")
	got := l.FlagValues()
	for name, want := range map[string]string{
		"hostname-override": "N", "v": "3", "root-dir": "/var/lib/kubelet", "manifest-url-header": "CLASSIFIED", "compatible-stream-verbs": "true",
	} {
		if got[name] != want {
			t.Errorf("--%s is shown as %q, want %q", name, got[name], want)
		}
	}
	if !l.Flags.CompatibleStreamVerbs || mustLoad(t).Flags.CompatibleStreamVerbs {
		t.Error("--compatible-stream-verbs has to be given to be on")
	}
}

func FuzzAFileIsLoadedOrRefusedButNeverPanics(f *testing.F) {
	f.Add(header + "maxPods: 5\n")
	f.Add(header + "evictionHard: {a: b}\nlogging: {verbosity: 99}\nuserNamespaces: {}\ncrashLoopBackOff: null\n")
	f.Add(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","registerWithTaints":[null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		file := write(t, t.TempDir(), "c", text)
		if l, err := load([]string{"--config=" + file}, logr.Discard()); err == nil && l.Config.Kind != "KubeletConfiguration" {
			t.Fatalf("accepted kind %q", l.Config.Kind)
		}
	})
}
