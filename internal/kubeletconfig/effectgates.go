package kubeletconfig

import "strings"

// gateEffects says what the gates do that a kubelet looks at. Those of other
// components and those that are locked are not among them.
func gateEffects() map[string]Effect {
	out := map[string]Effect{}
	for _, group := range gateEffectGroups() {
		for name := range strings.FieldsSeq(group.names) {
			out[name] = group.effect
		}
	}
	return out
}

// gateEffectGroup is a set of gates with one effect.
type gateEffectGroup struct {
	effect Effect
	names  string
}

func gateEffectGroups() []gateEffectGroup {
	return []gateEffectGroup{
		{used("gateway"), "ContainerCheckpoint ComponentFlagz ComponentStatusz PodLogsQuerySplitStreams"},
		{used("podsync"), `ContainerStopSignals EnvFiles ContainerRestartRules InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
			KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages KubeletServiceAccountTokenForCredentialProviders
			HostnameOverride MemoryQoS PodLevelResources QOSReserved PodReadyToStartContainersCondition PreventStaticPodAPIReferences
			ReduceDefaultCrashLoopBackOffDecay ClusterTrustBundleProjection PodCertificateRequest SELinuxMount
			LocalStorageCapacityIsolationFSQuotaMonitoring`},
		{used("podsync, stats"), "CSIVolumeHealth"},
		{used("nodestatus"), "AllowDNSOnlyNodeCSR"},
		{used("podsync, nodestatus"), "NodeDeclaredFeatures InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScalingInitContainers RestartAllContainersOnContainerExits"},
		{used("podsync, nodestatus, gateway"), "ExtendWebSocketsToKubelet"},
		{used("nodestatus, gateway, polylet run"), "RotateKubeletServerCertificate"},
		{used("nodestatus, polylet run"), "GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority"},
		{ours("what it stands for is always on"), `ContextualLogging CustomCPUCFSQuotaPeriod EventedPLEG
			KubeletSeparateDiskGC PodsAPI ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile`},
		{ours("pods are observed in another way"), "PLEGOnDemandRelist"},
		{ours("stats reads cgroups itself"), "PodAndContainerStatsFromCRI"},
		{ours("the behaviour of earlier releases is not offered"), "ChangeContainerStatusOnKubeletRestart KubeletRegistrationGetOnExistsOnly"},
		{later(noManagers), "CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions DisableCPUQuotaWithExclusiveCPUs PodLevelResourceManagers"},
		{later("there is no DRA yet"), "DRANodeAllocatableResources DRAWorkloadResourceClaims DRAConsumableCapacity DRAExtendedResource " +
			"ResourceHealthStatus ResourceHealthStatusMessage KubeletPodResourcesListUseActivePods"},
		{later("it is not built"), `CRIListStreaming ImageVolumeWithDigest KubeletInUserNamespace NativeHistograms RuntimeClassInImageCriApi TaintTolerationComparisonOperators UserNamespacesHostNetworkSupport
			LoggingAlphaOptions LoggingBetaOptions`},
	}
}

// actsAsGate says whether the behaviour of a gate that cannot be switched is
// there.
func actsAsGate(e Effect) bool {
	return e.State == Ours && strings.HasPrefix(e.Who, "what it stands for")
}

// standingGates are all gates with their defaults.
func standingGates() map[string]bool {
	out := map[string]bool{}
	for _, group := range gateGroups() {
		for name := range strings.FieldsSeq(group.names) {
			out[name] = group.on
		}
	}
	return out
}
