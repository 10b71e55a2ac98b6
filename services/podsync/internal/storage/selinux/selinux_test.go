package selinux

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// fedora is a policy as Fedora has it.
type fedora struct{}

func (fedora) Enabled() bool { return true }
func (fedora) File() string  { return "system_u:object_r:container_file_t:s0" }

// bare is one that names no label of files.
type bare struct{ fedora }

func (bare) File() string { return "" }

// pod has a container for each of the options, all of which mount the volume v.
func pod(own *v1.SELinuxOptions, containers ...*v1.SELinuxOptions) *v1.Pod {
	p := &v1.Pod{}
	if own != nil {
		p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: own}
	}
	for _, o := range containers {
		c := v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "v"}}}
		if o != nil {
			c.SecurityContext = &v1.SecurityContext{SELinuxOptions: o}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

func TestTheLabelOfAVolumeIsThatOfTheContainersThatMountIt(t *testing.T) {
	one := &v1.SELinuxOptions{Level: "s0:c1,c2"}
	elsewhere := pod(nil, one)
	elsewhere.Spec.InitContainers = []v1.Container{{SecurityContext: &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c9"}}, VolumeMounts: []v1.VolumeMount{{Name: "other"}}}}
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"the pod's":                       {pod(one, nil, nil), "system_u:object_r:container_file_t:s0:c1,c2"},
		"a container's comes before it":   {pod(&v1.SELinuxOptions{Level: "s0:c9"}, one), "system_u:object_r:container_file_t:s0:c1,c2"},
		"one container says nothing":      {pod(nil, one, nil), "system_u:object_r:container_file_t:s0:c1,c2"},
		"a user, and a process's type":    {pod(&v1.SELinuxOptions{User: "u", Role: "r", Type: "spc_t", Level: "s0"}, nil), "u:object_r:container_file_t:s0"},
		"another volume's are not asked":  {elsewhere, "system_u:object_r:container_file_t:s0:c1,c2"},
		"nobody says anything":            {pod(nil, nil), ""},
		"the runtime chooses the level":   {pod(&v1.SELinuxOptions{Type: "spc_t"}, nil), ""},
		"the same, said by both in their": {pod(one, one, &v1.SELinuxOptions{Level: "s0:c1,c2"}), "system_u:object_r:container_file_t:s0:c1,c2"},
	} {
		if got, err := Of(fedora{}, c.pod, "v"); got != c.want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := Of(bare{}, pod(one, nil), "v"); got != "" || err != nil {
		t.Errorf("without a policy's word: %q, %v", got, err)
	}
}

func TestContainersThatWantSeveralLabelsForOneVolumeAreTold(t *testing.T) {
	_, err := Of(fedora{}, pod(nil, &v1.SELinuxOptions{Level: "s0:c2"}, &v1.SELinuxOptions{Level: "s0:c1"}), "v")
	var several *Several
	if !errors.As(err, &several) || err.Error() != "multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,system_u:object_r:container_file_t:s0:c2" {
		t.Error(err)
	}
}

// TestWhatIsNoLabelBecomesNoMountOption: whoever may make a pod would else have its volume
// mounted with options of his own, of which the driver reads what follows a quote.
func TestWhatIsNoLabelBecomesNoMountOption(t *testing.T) {
	for _, o := range []v1.SELinuxOptions{
		{Level: `s0",suid,dev,x="`},
		{Level: "s0\\"},
		{Level: "s0 c1"},
		{Level: "s0\nx"},
		{Level: "s0=x"},
		{Level: "s0/x"},
		{Level: "s0;x"},
		{Level: "s0\x00"},
		{Level: "ѕ0"},
		{Level: "s0", User: `u",suid,x="`},
		{Level: "s0", User: "a:b"},
		{Level: "s0", User: "a,b"},
		{Level: "s0", Role: `"`},
		{Level: "s0", Type: `"`},
	} {
		label, err := Of(fedora{}, pod(&o, nil), "v")
		if label != "" || !errors.Is(err, ErrNoLabel) {
			t.Errorf("%+v: %q, %v", o, label, err)
		}
	}
	label, err := Of(fedora{}, pod(&v1.SELinuxOptions{Level: "s0-s15:c0.c1023,c3"}, nil), "v")
	if option := MountOption(label); err != nil || option != `context="system_u:object_r:container_file_t:s0-s15:c0.c1023,c3"` {
		t.Errorf("%s, %v", option, err)
	}
}

func TestWhichVolumesAreMountedWithALabel(t *testing.T) {
	for modes, want := range map[string]struct {
		acts, withAll bool
		shown         string
	}{
		"": {false, false, "inline"}, "ReadWriteOncePod": {true, true, "RWOP"}, "ReadWriteOnce": {false, true, "RWO"},
		"ReadWriteOncePod ReadWriteOnce": {false, true, "RWO"}, "ReadWriteOnce ReadOnlyMany": {false, true, "ROX"}, "ReadOnlyMany ReadWriteMany": {false, true, "RWX"},
	} {
		var list []v1.PersistentVolumeAccessMode
		for _, m := range strings.Fields(modes) {
			list = append(list, v1.PersistentVolumeAccessMode(m))
		}
		if Acts(list, false) != want.acts || Acts(list, true) != want.withAll || ShownMode(list) != want.shown {
			t.Errorf("%q: %v, %v, %s", modes, Acts(list, false), Acts(list, true), ShownMode(list))
		}
	}
}

func TestAPodMayWantItsFilesToBeGivenTheirLabelsOneByOne(t *testing.T) {
	p := pod(&v1.SELinuxOptions{Level: "s0"}, nil)
	for policy, want := range map[v1.PodSELinuxChangePolicy]bool{v1.SELinuxChangePolicyRecursive: true, v1.SELinuxChangePolicyMountOption: false} {
		p.Spec.SecurityContext.SELinuxChangePolicy = &policy
		if Recursive(p) != want {
			t.Errorf("%s: %v", policy, !want)
		}
	}
	if Recursive(&v1.Pod{}) {
		t.Error("a pod that says nothing")
	}
}

func TestALabelIsTheSameHoweverItsCategoriesAreWritten(t *testing.T) {
	const of = "u:r:t:"
	for _, same := range [][]string{
		{"", ""}, {of + "s0", of + "s0"}, {of + "s0", of + "s0-s0"}, {of + "s0:c1,c2", of + "s0:c2,c1", of + "s0:c1.c2", of + "s0:c1,c2,c1"},
		{of + "s0:c0.c3,c9", of + "s0:c9,c2.c3,c0,c1", of + "s0:c0.c2,c1.c3,c9"}, {of + "s0-s15:c0.c1023", of + "s0-s15:c512.c1023,c0.c511"},
		{of + "s0:c1,x", of + "s0:x,c1"}, {of + "s0:c0.c999999999999", of + "s0:c0.c999999999999"},
		{of + "s0:c0.c9", of + "s0:c0.c9,c3"},
	} {
		for _, a := range same {
			for _, b := range same {
				if !Same(a, b) {
					t.Errorf("%s is not %s", a, b)
				}
			}
		}
	}
	for _, other := range [][2]string{
		{"", of + "s0"}, {of + "s0:c1", of + "s0"}, {of + "s0:c1", of + "s0:c2"}, {of + "s0:c1,c3", of + "s0:c1.c3"}, {of + "s0:c1", "u:r:x:s0:c1"},
		{of + "s0-s1", of + "s0"}, {of + "s0:c3.c1", of + "s0"}, {of + "s0:c1.c3", of + "s0:c3.c1"}, {"u:r:t", "u:r"}, {of + "s0:c01", of + "s0:c2"},
	} {
		if Same(other[0], other[1]) || Same(other[1], other[0]) {
			t.Errorf("%s is taken for %s", other[0], other[1])
		}
	}
}
