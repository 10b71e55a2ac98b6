package node

// configuration is the KubeletConfiguration that test nodes run with. The
// eviction thresholds are absolute and low, and images are kept, because a test machine's
// disk is shared and may be nearly full; the cgroup driver is cgroupfs because
// no systemd runs there.
func (n *Node) configuration() map[string]any {
	fields := map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"address":                  n.cfg.ServeOn,
		"port":                     n.cfg.Port,
		"readOnlyPort":             n.cfg.ReadOnlyPort,
		"healthzPort":              n.cfg.HealthzPort,
		"healthzBindAddress":       n.healthzAddress(),
		"containerRuntimeEndpoint": n.cfg.RuntimeEndpoint,
		"staticPodPath":            n.StaticPods,
		"podLogsDir":               n.PodLogs,
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               n.cfg.Instance.CgroupRoot(),
		"cgroupsPerQOS":            true,
		"enforceNodeAllocatable":   []string{"pods"},
		"resolvConf":               "/etc/resolv.conf",
		"maxPods":                  250,
		"serializeImagePulls":      false,
		// The machine's own chains stay as they are.
		"makeIPTablesUtilChains": false,
		"evictionHard": map[string]any{
			"memory.available": "50Mi", "nodefs.available": "64Mi", "nodefs.inodesFree": "1000", "imagefs.available": "64Mi",
		},
		"imageGCHighThresholdPercent": 100,
	}
	if n.cfg.Cluster == nil {
		fields["authentication"] = map[string]any{
			"anonymous": map[string]any{"enabled": true},
			"webhook":   map[string]any{"enabled": false},
		}
		fields["authorization"] = map[string]any{"mode": "AlwaysAllow"}
		return fields
	}
	fields["authentication"] = map[string]any{
		"anonymous": map[string]any{"enabled": false},
		"webhook":   map[string]any{"enabled": true},
		"x509":      map[string]any{"clientCAFile": n.cfg.Cluster.ClientCAFile()},
	}
	fields["authorization"] = map[string]any{"mode": "Webhook"}
	return fields
}
