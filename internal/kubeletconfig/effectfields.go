package kubeletconfig

// Parts of the kubelet's work that are to come, as notices name them.
const (
	noManagers     = "nothing is pinned to processors or memory nodes until there are resource managers"
	noVolumes      = "of volumes outside the node only those of CSI drivers, NFS, iSCSI and Fibre Channel are there, without what this is for"
	asKubelet      = "the kubelet does not use it either"
	cadvisorLegacy = "the kubelet takes it for cAdvisor's sake and does not use it either"
)

// fieldEffects says of every field of KubeletConfiguration what it does.
func fieldEffects() map[string]Effect {
	out := map[string]Effect{}
	for _, part := range []map[string]Effect{servingEffects(), sourceEffects(), imageEffects(), resourceEffects(), managerEffects(), nodeEffects()} {
		for path, effect := range part {
			out[path] = effect
		}
	}
	return out
}

func servingEffects() map[string]Effect {
	return map[string]Effect{
		"enableServer":                               used("gateway"),
		"address":                                    used("gateway"),
		"port":                                       used("gateway, nodestatus"),
		"readOnlyPort":                               used("gateway"),
		"tlsCertFile":                                used("gateway, nodestatus"),
		"tlsPrivateKeyFile":                          used("gateway, nodestatus"),
		"tlsCipherSuites":                            used("gateway"),
		"tlsCurvePreferences":                        used("gateway"),
		"tlsMinVersion":                              used("gateway"),
		"rotateCertificates":                         used("podsync, nodestatus"),
		"serverTLSBootstrap":                         used("gateway, nodestatus"),
		"authentication.x509.clientCAFile":           used("gateway"),
		"authentication.webhook.enabled":             used("gateway"),
		"authentication.webhook.cacheTTL":            used("gateway"),
		"authentication.anonymous.enabled":           used("gateway"),
		"authorization.mode":                         used("gateway"),
		"authorization.webhook.cacheAuthorizedTTL":   used("gateway"),
		"authorization.webhook.cacheUnauthorizedTTL": used("gateway"),
		"enableDebuggingHandlers":                    used("gateway"),
		"enableContentionProfiling":                  used("all"),
		"enableSystemLogHandler":                     used("gateway"),
		"enableSystemLogQuery":                       used("gateway"),
		"enableProfilingHandler":                     used("gateway"),
		"enableDebugFlagsHandler":                    used("gateway"),
		"healthzPort":                                used("gateway"),
		"healthzBindAddress":                         used("gateway"),
		"streamingConnectionIdleTimeout":             idle(asKubelet),
		"tracing.endpoint":                           used("all"),
		"tracing.samplingRatePerMillion":             used("all"),
		"logging.format":                             used("all"),
		"logging.verbosity":                          used("all"),
		"logging.vmodule":                            used("all"),
		"logging.flushFrequency":                     ours("each line is written at once"),
		"logging.options.text.splitStream":           ours("all lines go to one stream, stderr"),
		"logging.options.text.infoBufferSize":        ours("each line is written at once"),
		"logging.options.json.splitStream":           ours("all lines go to one stream, stderr"),
		"logging.options.json.infoBufferSize":        ours("each line is written at once"),
		"showHiddenMetricsForVersion":                ours("no metric is hidden"),
	}
}

func sourceEffects() map[string]Effect {
	return map[string]Effect{
		"staticPodPath":      used("podsync"),
		"fileCheckFrequency": used("podsync"),
		"staticPodURL":       used("podsync"),
		"staticPodURLHeader": used("podsync"),
		"httpCheckFrequency": used("podsync"),
		"syncFrequency":      partly("podsync", "it bounds /healthz/syncloop; pods are looked at when something changes, not at an interval"),
		"podLogsDir":         used("podsync"),
		"configMapAndSecretChangeDetectionStrategy": ours("ConfigMaps and Secrets of pods are always watched"),
		"maxPods":                      used("podsync, nodestatus"),
		"podsPerCore":                  used("nodestatus"),
		"podCIDR":                      used("podsync"),
		"runOnce":                      idle("validation refuses it, as the kubelet's does"),
		"registerNode":                 used("nodestatus"),
		"registerWithTaints":           used("nodestatus"),
		"providerID":                   used("nodestatus"),
		"clusterDomain":                used("podsync"),
		"clusterDNS":                   used("podsync"),
		"resolvConf":                   used("podsync"),
		"hairpinMode":                  idle(asKubelet),
		"makeIPTablesUtilChains":       used("podsync"),
		"iptablesMasqueradeBit":        idle(asKubelet),
		"iptablesDropBit":              idle(asKubelet),
		"volumePluginDir":              later("there are no FlexVolumes; " + noVolumes),
		"volumeStatsAggPeriod":         used("stats"),
		"enableControllerAttachDetach": used("podsync, nodestatus"),
		"crashLoopBackOff.maxContainerRestartPeriod": used("podsync"),
	}
}

func imageEffects() map[string]Effect {
	return map[string]Effect{
		"containerRuntimeEndpoint":               used("podsync"),
		"imageServiceEndpoint":                   used("podsync"),
		"runtimeRequestTimeout":                  used("podsync"),
		"registryPullQPS":                        used("podsync"),
		"registryBurst":                          used("podsync"),
		"serializeImagePulls":                    used("podsync"),
		"maxParallelImagePulls":                  used("podsync"),
		"imagePullCredentialsVerificationPolicy": used("podsync"),
		"preloadedImagesVerificationAllowlist":   used("podsync"),
		"imageMinimumGCAge":                      used("podsync"),
		"imageMaximumGCAge":                      used("podsync"),
		"imageGCHighThresholdPercent":            used("podsync"),
		"imageGCLowThresholdPercent":             used("podsync"),
		"nodeStatusMaxImages":                    used("nodestatus"),
		"containerLogMaxSize":                    used("podsync"),
		"containerLogMaxFiles":                   used("podsync"),
		"containerLogMaxWorkers":                 used("podsync"),
		"containerLogMonitorInterval":            used("podsync"),
		"seccompDefault":                         used("podsync"),
		"userNamespaces.idsPerPod":               used("podsync"),
	}
}

func resourceEffects() map[string]Effect {
	return map[string]Effect{
		"cgroupDriver":                  used("podsync, stats, until the runtime says"),
		"cgroupRoot":                    used("podsync, stats"),
		"cgroupsPerQOS":                 used("podsync"),
		"kubeletCgroups":                used("all"),
		"systemCgroups":                 used("podsync, stats"),
		"enforceNodeAllocatable":        used("podsync, nodestatus"),
		"systemReserved":                used("podsync, nodestatus"),
		"kubeReserved":                  used("podsync, nodestatus"),
		"systemReservedCgroup":          used("podsync"),
		"kubeReservedCgroup":            used("podsync"),
		"reservedSystemCPUs":            partly("podsync, nodestatus", "as many processors are reserved; "+noManagers),
		"qosReserved":                   used("podsync"),
		"cpuCFSQuota":                   used("podsync"),
		"cpuCFSQuotaPeriod":             used("podsync"),
		"podPidsLimit":                  used("podsync"),
		"memoryThrottlingFactor":        used("podsync"),
		"memoryReservationPolicy":       used("podsync"),
		"singleProcessOOMKill":          used("podsync"),
		"failCgroupV1":                  used("podsync"),
		"failSwapOn":                    used("podsync"),
		"memorySwap.swapBehavior":       used("podsync"),
		"oomScoreAdj":                   used("all"),
		"maxOpenFiles":                  used("all"),
		"protectKernelDefaults":         used("podsync"),
		"allowedUnsafeSysctls":          used("podsync"),
		"localStorageCapacityIsolation": used("nodestatus"),
	}
}

func managerEffects() map[string]Effect {
	return map[string]Effect{
		"cpuManagerPolicy":             partly("podsync", "Guaranteed pods' processors cannot be resized, but "+noManagers),
		"cpuManagerPolicyOptions":      later(noManagers),
		"cpuManagerReconcilePeriod":    later(noManagers),
		"memoryManagerPolicy":          partly("podsync", "Guaranteed pods' memory cannot be resized, but "+noManagers),
		"reservedMemory":               later(noManagers),
		"topologyManagerPolicy":        later(noManagers),
		"topologyManagerScope":         later(noManagers),
		"topologyManagerPolicyOptions": later(noManagers),
	}
}

func nodeEffects() map[string]Effect {
	return map[string]Effect{
		"evictionHard":                     used("nodestatus"),
		"evictionSoft":                     used("nodestatus"),
		"evictionSoftGracePeriod":          used("nodestatus"),
		"evictionPressureTransitionPeriod": used("nodestatus"),
		"evictionMaxPodGracePeriod":        used("nodestatus"),
		"evictionMinimumReclaim":           used("nodestatus"),
		"mergeDefaultEvictionSettings":     used("loading"),
		"kernelMemcgNotification":          used("stats"),
		"shutdownGracePeriod":              used("nodestatus, polylet run, polylet handout"),
		"shutdownGracePeriodCriticalPods":  used("nodestatus, polylet run, polylet handout"),
		"shutdownGracePeriodByPodPriority": used("nodestatus, polylet run, polylet handout"),
		"kubeAPIQPS":                       used("podsync, nodestatus"),
		"kubeAPIBurst":                     used("podsync, nodestatus"),
		"contentType":                      used("podsync, nodestatus"),
		"eventRecordQPS":                   used("podsync, nodestatus"),
		"eventBurst":                       used("podsync, nodestatus"),
		"nodeStatusUpdateFrequency":        used("nodestatus"),
		"nodeStatusReportFrequency":        used("nodestatus"),
		"nodeLeaseDurationSeconds":         used("nodestatus"),
		"featureGates":                     used("loading"), // of which each has owners of its own: gateEffects
	}
}
