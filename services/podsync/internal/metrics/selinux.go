package metrics

import "github.com/prometheus/client_golang/prometheus"

// selinuxMetrics count what becomes of volumes that could be mounted with SELinux labels:
// what keeps a pod from having one (errors), and what would if all volumes were (warnings).
// They are gauges that only grow, as the kubelet's.
type selinuxMetrics struct {
	container, pod, volume failures
	admitted               *prometheus.GaugeVec
}

// failures are two series of one kind.
type failures struct{ errors, warnings *prometheus.GaugeVec }

func (f failures) of(errs bool) *prometheus.GaugeVec {
	if errs {
		return f.errors
	}
	return f.warnings
}

func newSELinux(reg prometheus.Registerer) *selinuxMetrics {
	vec := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "volume_manager_selinux_" + name + "_total", Help: help}, labels)
		reg.MustRegister(g)
		return g
	}
	const later = " They are not errors yet, but they will become real errors when SELinuxMountReadWriteOncePod feature is expanded to all volume access modes."
	const retried = " Kubelet can't start such a Pod then and it will retry, therefore value of this metric may not represent the actual nr. of "
	return &selinuxMetrics{
		container: failures{
			vec("container_errors", "Number of errors when kubelet cannot compute SELinux context for a container."+retried+"containers.", "access_mode"),
			vec("container_warnings", "Number of errors when kubelet cannot compute SELinux context for a container that are ignored. They will become real errors when SELinuxMountReadWriteOncePod feature is expanded to all volume access modes.", "access_mode"),
		},
		pod: failures{
			vec("pod_context_mismatch_errors", "Number of errors when a Pod defines different SELinux contexts for its containers that use the same volume."+retried+"Pods.", "access_mode"),
			vec("pod_context_mismatch_warnings", "Number of errors when a Pod defines different SELinux contexts for its containers that use the same volume."+later, "access_mode"),
		},
		volume: failures{
			vec("volume_context_mismatch_errors", "Number of errors when a Pod uses a volume that is already mounted with a different SELinux context than the Pod needs."+retried+"Pods.", "access_mode", "volume_plugin"),
			vec("volume_context_mismatch_warnings", "Number of errors when a Pod uses a volume that is already mounted with a different SELinux context than the Pod needs."+later, "access_mode", "volume_plugin"),
		},
		admitted: vec("volumes_admitted", "Number of volumes whose SELinux context was fine and will be mounted with mount -o context option.", "access_mode", "volume_plugin"),
	}
}

// forget drops what was counted of a driver's volumes.
func (m *selinuxMetrics) forget(driver string) {
	of := prometheus.Labels{"volume_plugin": "kubernetes.io/csi/" + driver}
	for _, g := range []*prometheus.GaugeVec{m.volume.errors, m.volume.warnings, m.admitted} {
		g.DeletePartialMatch(of)
	}
}

// SELinuxContainerFailed counts a container whose SELinux label cannot be told, which has a
// volume of an access mode; refused: its pod does not get the volume.
func (m *Metrics) SELinuxContainerFailed(refused bool, mode string) {
	if m != nil {
		m.selinux.container.of(refused).WithLabelValues(mode).Inc()
	}
}

// SELinuxPodMismatch counts a pod whose containers want one volume with several labels.
func (m *Metrics) SELinuxPodMismatch(refused bool, mode string) {
	if m != nil {
		m.selinux.pod.of(refused).WithLabelValues(mode).Inc()
	}
}

// SELinuxVolumeMismatch counts a pod that wants a volume with another label than one that
// has it; plugin is the volume's, with its driver.
func (m *Metrics) SELinuxVolumeMismatch(refused bool, plugin, mode string) {
	if m != nil {
		m.selinux.volume.of(refused).WithLabelValues(mode, plugin).Inc()
	}
}

// SELinuxVolumeAdmitted counts a volume that is mounted with a label, or would be.
func (m *Metrics) SELinuxVolumeAdmitted(plugin, mode string) {
	if m != nil {
		m.selinux.admitted.WithLabelValues(mode, plugin).Inc()
	}
}
