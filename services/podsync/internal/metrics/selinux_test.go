package metrics

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestVolumesAndTheirLabelsAreCountedByTheirAccessModes(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := New(reg)
	series := func() (list []string) {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, one := range f.GetMetric() {
				if one.GetGauge().GetValue() != 0 {
					text := f.GetName()
					for _, l := range one.GetLabel() {
						text += " " + l.GetName() + "=" + l.GetValue()
					}
					list = append(list, text)
				}
			}
		}
		return list
	}
	for _, refused := range []bool{true, false} {
		m.SELinuxContainerFailed(refused, "RWOP")
		m.SELinuxPodMismatch(refused, "RWOP")
		m.SELinuxVolumeMismatch(refused, "kubernetes.io/csi/a", "RWX")
	}
	m.SELinuxVolumeAdmitted("kubernetes.io/csi/a", "RWX")
	all := []string{
		"volume_manager_selinux_container_errors_total access_mode=RWOP",
		"volume_manager_selinux_container_warnings_total access_mode=RWOP",
		"volume_manager_selinux_pod_context_mismatch_errors_total access_mode=RWOP",
		"volume_manager_selinux_pod_context_mismatch_warnings_total access_mode=RWOP",
		"volume_manager_selinux_volume_context_mismatch_errors_total access_mode=RWX volume_plugin=kubernetes.io/csi/a",
		"volume_manager_selinux_volume_context_mismatch_warnings_total access_mode=RWX volume_plugin=kubernetes.io/csi/a",
		"volume_manager_selinux_volumes_admitted_total access_mode=RWX volume_plugin=kubernetes.io/csi/a",
	}
	if got := series(); !slices.Equal(got, all) {
		t.Errorf("counted %q", got)
	}
	m.ForgetCSI("a")
	if got := series(); !slices.Equal(got, all[:4]) {
		t.Errorf("of a driver that is forgotten %q is left", got)
	}
	var none *Metrics
	none.SELinuxContainerFailed(true, "")
	none.SELinuxPodMismatch(true, "")
	none.SELinuxVolumeMismatch(true, "", "")
	none.SELinuxVolumeAdmitted("", "")
}
