package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// gateGroup is a set of feature gates that stand alike.
type gateGroup struct {
	stage  string
	on     bool
	locked bool
	names  string
}

// gateGroups are the gates that a kubelet of Kubernetes 1.36 accepts, with
// their defaults. Most concern other components and must only parse.
func gateGroups() []gateGroup {
	return []gateGroup{
		{"GA", true, true, "APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource AuthorizeNodeWithSelectors " +
			"AuthorizeWithSelectors BtreeWatchCache CPUManagerPolicyOptions CRDValidationRatcheting " +
			"CSIServiceAccountTokenSecrets ConsistentListFromCache CustomResourceFieldSelectors DRAAdminAccess " +
			"DeclarativeValidation DisableAllocatorDualWrite DynamicResourceAllocation ExecProbeTimeout " +
			"ExternalServiceAccountTokenSigner ImageMaximumGCAge ImageVolume InOrderInformers " +
			"InPlacePodVerticalScaling JobBackoffLimitPerIndex JobManagedBy JobPodReplacementPolicy " +
			"JobSuccessPolicy KubeletCgroupDriverFromCRI KubeletFineGrainedAuthz KubeletPSI " +
			"KubeletPodResourcesDynamicResources KubeletPodResourcesGet KubeletTracing LogarithmicScaleDown " +
			"MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator MutableCSINodeAllocatableCount " +
			"NFTablesProxyMode NodeInclusionPolicyInPodTopologySpread NodeLogQuery NodeSwap " +
			"OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero " +
			"PodObservedGenerationTracking PodSchedulingReadiness PreferSameTrafficDistribution ProcMountType " +
			"RecoverVolumeExpansionFailure RecursiveReadOnlyMounts RelaxedDNSSearchValidation " +
			"RelaxedEnvironmentVariableValidation ResilientWatchCacheInitialization RetryGenerateName " +
			"SELinuxChangePolicy SELinuxMountReadWriteOncePod SchedulerQueueingHints " +
			"SeparateTaintEvictionController ServiceAccountTokenJTI ServiceAccountTokenNodeBinding " +
			"ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo SidecarContainers " +
			"StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf " +
			"StructuredAuthenticationConfiguration SupplementalGroupsPolicy SystemdWatchdog " +
			"TopologyManagerPolicyOptions UserNamespacesSupport VolumeAttributesClass WinDSR WinOverlay"},
		{"GA", true, false, "AllowServiceExternalIPs CustomCPUCFSQuotaPeriod DRAPrioritizedList InformerResourceVersion " +
			"MutatingAdmissionPolicy"},
		{"beta", true, false, "APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth AtomicFIFO " +
			"AuthorizePodWebsocketUpgradeCreatePermission CPUManagerPolicyBetaOptions " +
			"CRDObservedGenerationTracking ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation " +
			"ClientsAllowTLSCacheGC ComponentFlagz ComponentStatusz ConstrainedImpersonation ContainerCheckpoint " +
			"ContainerRestartRules ContextualLogging DRAConsumableCapacity DRADeviceBindingConditions " +
			"DRADeviceTaints DRAExtendedResource DRAPartitionableDevices DRAResourceClaimDeviceStatus " +
			"DRAResourceClaimGranularStatusAuthorization DRASchedulerFilterTimeout DeclarativeValidationBeta " +
			"DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency EnvFiles ExtendWebSocketsToKubelet " +
			"GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance " +
			"HostnameOverride InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling " +
			"InPlacePodVerticalScalingInitContainers KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages " +
			"KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot " +
			"LoggingBetaOptions MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge " +
			"MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs NodeDeclaredFeatures " +
			"NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PLEGOnDemandRelist " +
			"PodDeletionCost PodLevelResources PodReadyToStartContainersCondition PodTopologyLabelsAdmission " +
			"PortForwardWebsockets PreventStaticPodAPIReferences RelaxedServiceNameValidation " +
			"ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemoteRequestHeaderUID " +
			"ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits " +
			"RotateKubeletServerCertificate SchedulerAsyncPreemption SchedulerPopFromBackoffQ " +
			"ServiceAccountNodeAudienceRestriction SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet " +
			"StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet " +
			"StaleControllerConsistencyStatefulSet StatefulSetSemanticRevisionComparison StorageVersionHash " +
			"StrictIPCIDRValidation StructuredAuthenticationConfigurationEgressSelector " +
			"StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation " +
			"TopologyManagerPolicyBetaOptions TranslateStreamCloseWebsocketRequests " +
			"UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO " +
			"WatchCacheInitializationPostStartHook WatchList WatchListClient WindowsGracefulNodeShutdown"},
		{"beta", false, false, "ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode " +
			"CoordinatedLeaderElection DRADeviceTaintRules LocalStorageCapacityIsolationFSQuotaMonitoring " +
			"MaxUnavailableStatefulSet PodCertificateRequest SELinuxMount SchedulerAsyncAPICalls " +
			"StorageVersionMigrator"},
		{"deprecated", true, true, "AggregatedDiscoveryRemoveBetaType DisableNodeKubeProxyVersion"},
		{"deprecated", true, false, "DisableCPUQuotaWithExclusiveCPUs KubeletPodResourcesListUseActivePods ServiceCIDRStatusFieldWiping " +
			"StorageNamespaceIndex"},
		{"deprecated", false, true, "AllowOverwriteTerminationGracePeriodSeconds GitRepoVolumeDriver SeparateCacheWatchRPC"},
		{"deprecated", false, false, "AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests " +
			"ChangeContainerStatusOnKubeletRestart DeclarativeValidationTakeover KMSv1 " +
			"KubeletRegistrationGetOnExistsOnly WindowsHostNetwork"},
		{"alpha", false, false, "APIServingWithRoutine AllowUnsafeMalformedObjectDeletion CBORServingAndStorage " +
			"CPUManagerPolicyAlphaOptions CRIListStreaming CSIVolumeHealth ClientsAllowCBOR ClientsPreferCBOR " +
			"ContainerStopSignals CrossNamespaceVolumeDataSource DRAListTypeAttributes " +
			"DRANodeAllocatableResources DRAResourcePoolStatus DRAWorkloadResourceClaims EventedPLEG " +
			"GangScheduling GenericWorkload HPAScaleToZero ImageVolumeWithDigest " +
			"InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory " +
			"KubeletInUserNamespace LoggingAlphaOptions ManifestBasedAdmissionControlConfig MemoryQoS " +
			"MutablePVNodeAffinity NativeHistograms PersistentVolumeClaimUnusedSinceTime " +
			"PodAndContainerStatsFromCRI PodLevelResourceManagers PodLogsQuerySplitStreams PodsAPI QOSReserved " +
			"ReduceDefaultCrashLoopBackOffDecay RuntimeClassInImageCriApi ShardedListAndWatch " +
			"StorageCapacityScoring StorageVersionAPI TaintTolerationComparisonOperators " +
			"TopologyAwareWorkloadScheduling TopologyManagerPolicyAlphaOptions UserNamespacesHostNetworkSupport " +
			"VolumeLimitScaling WindowsCPUAndMemoryAffinity WorkloadAwarePreemption WorkloadWithJob"},
	}
}

// gateNeeds says which gates must be on for a gate to be on.
func gateNeeds() map[string][]string {
	return map[string][]string{
		"ClusterTrustBundleProjection":             {"ClusterTrustBundle"},
		"DRAConsumableCapacity":                    {"DynamicResourceAllocation"},
		"DRAExtendedResource":                      {"DynamicResourceAllocation"},
		"DRAPartitionableDevices":                  {"DynamicResourceAllocation"},
		"DRANodeAllocatableResources":              {"DynamicResourceAllocation"},
		"DRAAdminAccess":                           {"DynamicResourceAllocation"},
		"DRAPrioritizedList":                       {"DynamicResourceAllocation"},
		"DRADeviceBindingConditions":               {"DynamicResourceAllocation", "DRAResourceClaimDeviceStatus"},
		"DRAWorkloadResourceClaims":                {"DynamicResourceAllocation", "GenericWorkload"},
		"ExtendWebSocketsToKubelet":                {"NodeDeclaredFeatures"},
		"GracefulNodeShutdownBasedOnPodPriority":   {"GracefulNodeShutdown"},
		"WindowsGracefulNodeShutdown":              {"GracefulNodeShutdown"},
		"ImageVolumeWithDigest":                    {"ImageVolume"},
		"InPlacePodLevelResourcesVerticalScaling":  {"InPlacePodVerticalScaling", "PodLevelResources", "NodeDeclaredFeatures"},
		"InPlacePodVerticalScalingInitContainers":  {"InPlacePodVerticalScaling", "NodeDeclaredFeatures"},
		"InPlacePodVerticalScalingExclusiveCPUs":   {"InPlacePodVerticalScaling"},
		"InPlacePodVerticalScalingExclusiveMemory": {"InPlacePodVerticalScaling"},
		"PodCertificateRequest":                    {"AuthorizeNodeWithSelectors"},
		"PodLevelResourceManagers":                 {"PodLevelResources"},
		"ProcMountType":                            {"UserNamespacesSupport"},
		"ResourceHealthStatus":                     {"DynamicResourceAllocation"},
		"ResourceHealthStatusMessage":              {"ResourceHealthStatus"},
		"RestartAllContainersOnContainerExits":     {"ContainerRestartRules", "NodeDeclaredFeatures"},
		"UserNamespacesHostNetworkSupport":         {"UserNamespacesSupport", "NodeDeclaredFeatures"},
		"PodLifecycleSleepActionAllowZero":         {"PodLifecycleSleepAction"},
	}
}

// resolveGates lays what was set over the defaults. Unknown names, a locked
// gate set to the other value, and a gate without what it needs are errors.
func resolveGates(set map[string]bool) (map[string]bool, error) {
	gates, locked := map[string]bool{}, map[string]bool{}
	for _, group := range gateGroups() {
		on := group.on
		if all, ok := set["AllAlpha"]; ok && group.stage == "alpha" {
			on = all
		}
		if all, ok := set["AllBeta"]; ok && group.stage == "beta" {
			on = all
		}
		for _, name := range strings.Fields(group.names) {
			gates[name] = on
			locked[name] = group.locked
		}
	}
	for name, on := range set {
		if name == "AllAlpha" || name == "AllBeta" {
			continue
		}
		standing, known := gates[name]
		switch {
		case !known:
			return nil, fmt.Errorf("unrecognized feature gate: %s: correct or remove it", name)
		case locked[name] && on != standing:
			return nil, fmt.Errorf("cannot set feature gate %s to %v, feature is locked to %v: remove it", name, on, standing)
		}
		gates[name] = on
	}
	return gates, checkNeeds(gates)
}

func checkNeeds(gates map[string]bool) error {
	all := gateNeeds()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var off []string
		for _, need := range all[name] {
			if !gates[need] {
				off = append(off, need)
			}
		}
		if gates[name] && len(off) > 0 {
			slices.Sort(off)
			return fmt.Errorf("%s is enabled, but depends on features that are disabled: %v", name, off)
		}
	}
	return nil
}
