package claims

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

func pod() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "pod-uid"}}
}

func byClaim(name string) *v1.Volume {
	return &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: true}}}
}

func bound() *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim-uid"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
}

func volume() *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: "c", UID: "claim-uid"},
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/x"}},
		},
	}
}

// says compares an error with what it should say; empty for none.
func TestWhatKeepsAClaimsVolumeHasItsCause(t *testing.T) {
	r, _ := Of(pod(), byClaim("c"))
	own, _ := Of(pod(), &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
	check := func(change func(*v1.PersistentVolumeClaim)) error {
		claim := bound()
		change(claim)
		return r.Check(pod(), claim)
	}
	with := func(change func(*v1.PersistentVolume)) *v1.PersistentVolume {
		pv := volume()
		change(pv)
		return pv
	}
	block := ptr.To(v1.PersistentVolumeBlock)
	mounting := pod()
	mounting.Spec.Containers = []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "v"}}}}
	mapping := pod()
	mapping.Spec.Containers = []v1.Container{{VolumeDevices: []v1.VolumeDevice{{Name: "v"}}}}
	nowhere := &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: v1.NodeSelectorOpExists}}}}}}
	for name, c := range map[string]struct {
		err  error
		want podstate.VolumeCause
	}{
		"not bound":         {check(func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimPending }), podstate.VolumeNotBound},
		"bound to nothing":  {check(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }), podstate.VolumeNotBound},
		"half bound":        {r.CheckVolume(bound(), with(func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil })), podstate.VolumeNotBound},
		"going":             {check(func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), podstate.VolumeClaimEnding},
		"another's volume":  {r.CheckVolume(bound(), with(func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" })), podstate.VolumeOthersClaim},
		"not the pod's":     {own.Check(pod(), bound()), podstate.VolumeOthersPod},
		"a device, mounted": {CheckMode(mounting, "v", with(func(pv *v1.PersistentVolume) { pv.Spec.VolumeMode = block })), podstate.VolumeMode},
		"mapped, no device": {CheckMode(mapping, "v", volume()), podstate.VolumeMode},
		"of other nodes":    {CheckNode(with(func(pv *v1.PersistentVolume) { pv.Spec.NodeAffinity = nowhere }), nil), podstate.VolumeOtherNode},
		"mount options":     {CheckNoOptions(with(func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"ro"} })), podstate.VolumeOptions},
		"for one pod":       {ErrInUse, podstate.VolumeInUse},
		"of no known kind":  {CheckKind(with(func(pv *v1.PersistentVolume) { pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{} })), podstate.VolumeUnsupported},
		"of flexVolume": {CheckKind(with(func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{FlexVolume: &v1.FlexPersistentVolumeSource{}}
		})), podstate.VolumeUnsupported},
		"a device, but none": {CheckKind(with(func(pv *v1.PersistentVolume) {
			pv.Spec.VolumeMode, pv.Spec.PersistentVolumeSource = block, v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}
		})), podstate.VolumeNoDevice},
	} {
		if got := podstate.VolumeCauseOf(c.err); got != c.want {
			t.Errorf("%s: %v: cause %d, want %d", name, c.err, got, c.want)
		}
	}
}

func says(t *testing.T, err error, want string) {
	t.Helper()
	if got := text(err); got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAVolumeNamesItsClaimByItselfOrByThePod(t *testing.T) {
	for name, c := range map[string]struct {
		volume *v1.Volume
		want   Reference
		is     bool
	}{
		"a claim":             {byClaim("c"), Reference{Namespace: "ns", Name: "c", ReadOnly: true}, true},
		"a claim of a pod":    {&v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}, Reference{Namespace: "ns", Name: "p-v", Ephemeral: true}, true},
		"none, of before CSI": {&v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "x", ReadOnly: true}}}, Reference{ReadOnly: true}, true},
		"neither":             {&v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}, Reference{}, false},
	} {
		if got, is := Of(pod(), c.volume); got != c.want || is != c.is {
			t.Errorf("%s: %+v, %v", name, got, is)
		}
	}
}

func TestAClaimIsUsedWhenItIsBoundAndNotGoing(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolumeClaim)
		want   string
	}{
		"bound":                    {func(*v1.PersistentVolumeClaim) {}, ""},
		"pending":                  {func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimPending }, "error processing PVC ns/c: PVC is not bound"},
		"lost":                     {func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimLost }, "error processing PVC ns/c: PVC is not bound"},
		"bound to nothing":         {func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }, "error processing PVC ns/c: PVC has empty pvc.Spec.VolumeName"},
		"going":                    {func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }, "error processing PVC ns/c: PVC is being deleted"},
		"going and kept for users": {func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp, c.Finalizers = &now, []string{protected} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := bound()
			c.change(claim)
			r, _ := Of(pod(), byClaim("c"))
			says(t, r.Check(pod(), claim), c.want)
		})
	}
}

func TestAnEphemeralVolumesClaimIsThePodsOwn(t *testing.T) {
	const alien = "PVC ns/p-v was not created for pod ns/p (pod is not owner)"
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		want   string
	}{
		"nobody's":                   {nil, alien},
		"another's of the same name": {[]metav1.OwnerReference{{UID: "old-uid", Name: "p", Controller: ptr.To(true)}}, alien},
		"not as its controller":      {[]metav1.OwnerReference{{UID: "pod-uid", Name: "p"}}, alien},
		"its own":                    {[]metav1.OwnerReference{{UID: "pod-uid", Name: "p", Controller: ptr.To(true)}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim := bound()
			claim.Name, claim.OwnerReferences = "p-v", c.owners
			r, _ := Of(pod(), &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
			says(t, r.Check(pod(), claim), c.want)
		})
	}
}

func TestAVolumeIsTheClaimsWhenItSaysSoItself(t *testing.T) {
	r, _ := Of(pod(), byClaim("c"))
	says(t, r.CheckVolume(bound(), volume()), "")
	other := volume()
	other.Spec.ClaimRef.UID = "an-earlier-claim"
	says(t, r.CheckVolume(bound(), other), "error processing PVC ns/c: found PV object pv but its pv.Spec.ClaimRef.UID an-earlier-claim does not point to claim.UID claim-uid")
	other.Spec.ClaimRef = nil
	says(t, r.CheckVolume(bound(), other), "error processing PVC ns/c: found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim")
}

func TestContainersUseAVolumeAsItsModeSays(t *testing.T) {
	mount, device := []v1.VolumeMount{{Name: "v"}}, []v1.VolumeDevice{{Name: "v"}}
	for name, c := range map[string]struct {
		container v1.Container
		mode      *v1.PersistentVolumeMode
		want      string
	}{
		"a filesystem":             {v1.Container{VolumeMounts: mount}, ptr.To(v1.PersistentVolumeFilesystem), ""},
		"a filesystem by default":  {v1.Container{VolumeMounts: mount}, nil, ""},
		"a device":                 {v1.Container{VolumeDevices: device}, ptr.To(v1.PersistentVolumeBlock), ""},
		"a device as a filesystem": {v1.Container{VolumeMounts: mount}, ptr.To(v1.PersistentVolumeBlock), "volume v has volumeMode Block, but is specified in volumeMounts"},
		"a filesystem as a device": {v1.Container{VolumeDevices: device}, nil, "volume v has volumeMode Filesystem, but is specified in volumeDevices"},
		"by nobody":                {v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "other"}}}, ptr.To(v1.PersistentVolumeBlock), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, pv := pod(), volume()
			p.Spec.InitContainers, pv.Spec.VolumeMode = []v1.Container{c.container}, c.mode
			p.Spec.Containers = []v1.Container{{Name: "another"}} // which does not use it
			says(t, CheckMode(p, "v", pv), c.want)
			if got := Used(p)["v"]; got != (name != "by nobody") {
				t.Errorf("used: %v", got)
			}
		})
	}
}

func TestAVolumeThatBelongsToOtherNodesIsRefused(t *testing.T) {
	pv := volume()
	says(t, CheckNode(pv, nil), "")
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{"n1"}}},
	}}}}
	says(t, CheckNode(pv, map[string]string{v1.LabelHostname: "n1"}), "")
	err := &podstate.VolumeError{Volume: "v", Err: CheckNode(pv, map[string]string{v1.LabelHostname: "n2"})}
	says(t, err, `MountVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms`)
	block := v1.PersistentVolumeBlock
	pv.Spec.VolumeMode = &block
	err.Err = CheckNode(pv, nil)
	says(t, err, `MapVolume.NodeAffinity check failed for volume "v" : no matching NodeSelectorTerms`)
}

func TestOnlyOnePodUsesAVolumeWhoseOnlyModeSaysSo(t *testing.T) {
	for _, c := range []struct {
		modes []v1.PersistentVolumeAccessMode
		want  bool
	}{
		{nil, false}, {[]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, false},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, true},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod, v1.ReadWriteOnce}, false},
	} {
		pv := volume()
		pv.Spec.AccessModes = c.modes
		if got := ForOnePod(pv); got != c.want {
			t.Errorf("%v: %v", c.modes, got)
		}
	}
}

func TestTheGroupOfAVolumeIsANumber(t *testing.T) {
	for text, want := range map[string]int64{"": -1, "x": -1, "1234": 1234} {
		pv := volume()
		pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": text}
		if got, is := Group(pv); is != (want >= 0) || is && got != want {
			t.Errorf("%q: %d, %v", text, got, is)
		}
	}
}

func TestMountOptionsAreOnceEachAndTheAnnotationComesFirst(t *testing.T) {
	pv := volume()
	pv.Spec.MountOptions = []string{"ro", "noexec", "ro"}
	if got := MountOptions(pv); !slices.Equal(got, []string{"noexec", "ro"}) {
		t.Errorf("%v", got)
	}
	pv.Spec.MountOptions = []string{"", "ro", "noexec"}
	if got := MountOptions(pv); !slices.Equal(got, []string{"noexec", "ro"}) || !slices.Equal(pv.Spec.MountOptions, []string{"", "ro", "noexec"}) {
		t.Errorf("%v; the volume itself has %v by now", got, pv.Spec.MountOptions)
	}
	says(t, &podstate.VolumeError{Volume: "v", Err: CheckNoOptions(pv)}, `MountVolume.MountOptionSupport check failed for volume "v" : mount options are not supported for this volume type`)
	pv.Annotations = map[string]string{v1.MountOptionAnnotation: ""}
	if got := MountOptions(pv); len(got) != 0 {
		t.Errorf("%v", got)
	}
	says(t, CheckNoOptions(pv), "")
}

func TestAKindThatIsNotSupportedIsNamed(t *testing.T) {
	for kind, c := range map[string]struct {
		source v1.PersistentVolumeSource
		want   string
	}{
		"hostPath":   {v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{}}, ""},
		"local":      {v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{}}, ""},
		"csi":        {v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{}}, ""},
		"nfs":        {v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}, ""},
		"iscsi":      {v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{}}, ""},
		"fc":         {v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{}}, ""},
		"cephfs":     {v1.PersistentVolumeSource{CephFS: &v1.CephFSPersistentVolumeSource{}}, "PersistentVolume pv is of the kind cephfs, which this node does not support; use csi, nfs, iscsi, fc, hostPath or local"},
		"flexVolume": {v1.PersistentVolumeSource{FlexVolume: &v1.FlexPersistentVolumeSource{}}, "PersistentVolume pv is of the kind flexVolume, which this node does not run; use a CSI driver"},
		"unknown":    {v1.PersistentVolumeSource{}, "PersistentVolume pv is of the kind unknown, which this node does not support; use csi, nfs, iscsi, fc, hostPath or local"},
	} {
		pv := volume()
		pv.Spec.PersistentVolumeSource = c.source
		if got := Kind(pv); got != kind {
			t.Errorf("%s is called %s", kind, got)
		}
		says(t, CheckKind(pv), c.want)
	}
	pv := volume()
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeFilesystem)
	says(t, CheckKind(pv), "")
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	says(t, CheckKind(pv), "PersistentVolume pv has volumeMode Block, which volumes of the kind hostPath do not have")
	for _, source := range []v1.PersistentVolumeSource{
		{CSI: &v1.CSIPersistentVolumeSource{}}, {Local: &v1.LocalVolumeSource{}}, {ISCSI: &v1.ISCSIPersistentVolumeSource{}}, {FC: &v1.FCVolumeSource{}},
	} {
		pv.Spec.PersistentVolumeSource = source
		says(t, CheckKind(pv), "")
	}
}
