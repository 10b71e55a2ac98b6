package podutil

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func annotated(key, value string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}}
}

func TestWhereAPodComesFrom(t *testing.T) {
	system, almost := int32(2_000_000_000), int32(1_999_999_999)
	mirror := annotated(AnnotationMirror, "hash")
	mirror.Annotations[AnnotationSource] = "file"
	for name, tc := range map[string]struct {
		pod                      *v1.Pod
		static, mirror, critical bool
	}{
		"no annotation":       {&v1.Pod{}, false, false, false},
		"of the apiserver":    {annotated(AnnotationSource, SourceAPI), false, false, false},
		"of a file":           {annotated(AnnotationSource, "file"), true, false, true},
		"of a URL":            {annotated(AnnotationSource, "http"), true, false, true},
		"a mirror":            {annotated(AnnotationMirror, "hash"), false, true, true},
		"a mirror of a file":  {mirror, false, true, true},
		"a system's priority": {&v1.Pod{Spec: v1.PodSpec{Priority: &system}}, false, false, true},
		"one below that":      {&v1.Pod{Spec: v1.PodSpec{Priority: &almost}}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if static, mirror, critical := Static(tc.pod), Mirror(tc.pod), Critical(tc.pod); static != tc.static || mirror != tc.mirror || critical != tc.critical {
				t.Errorf("static %v, mirror %v, critical %v", static, mirror, critical)
			}
		})
	}
}

func TestAContainerIsFoundInItsListByItsName(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "first"}, {Name: "beside", RestartPolicy: &always}},
		Containers:          []v1.Container{{Name: "main"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", TTY: true}}},
	}}
	for name, tc := range map[string]struct {
		want    *v1.Container
		kind    Kind
		sidecar bool
	}{
		"first":  {&pod.Spec.InitContainers[0], Init, false},
		"beside": {&pod.Spec.InitContainers[1], Init, true},
		"main":   {&pod.Spec.Containers[0], Regular, false},
		"other":  {nil, None, false},
	} {
		if c, kind := Container(pod, name); c != tc.want || kind != tc.kind || c != nil && Sidecar(c) != tc.sidecar {
			t.Errorf("%s: %v, %v", name, c, kind)
		}
	}
	if c, kind := Container(pod, "debug"); c == nil || kind != Ephemeral || !c.TTY {
		t.Errorf("the ephemeral container: %v, %v", c, kind)
	}
	if c, kind := Container(nil, "main"); c != nil || kind != None {
		t.Errorf("without a pod: %v, %v", c, kind)
	}
	var names []string
	for _, c := range Containers(pod) {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"first", "beside", "main", "debug"}) {
		t.Errorf("in the order %v", names)
	}
}

func TestQOSClassFollowsRequestsAndLimits(t *testing.T) {
	list := func(pairs ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return l
	}
	of := func(all ...v1.ResourceRequirements) *v1.Pod {
		pod := &v1.Pod{}
		for _, r := range all {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: r})
		}
		return pod
	}
	both := v1.ResourceRequirements{Limits: list("cpu", "1", "memory", "1Gi")}
	withInit := of(both)
	withInit.Spec.InitContainers = []v1.Container{{}}
	withDebug := of(both)
	withDebug.Spec.EphemeralContainers = []v1.EphemeralContainer{{}}
	itsOwn := of(v1.ResourceRequirements{})
	itsOwn.Spec.Resources = &both
	told := of(both)
	told.Status.QOSClass = v1.PodQOSBurstable
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		"no container":              {of(), v1.PodQOSBestEffort},
		"nothing":                   {of(v1.ResourceRequirements{}), v1.PodQOSBestEffort},
		"a request":                 {of(v1.ResourceRequirements{Requests: list("cpu", "1")}), v1.PodQOSBurstable},
		"a request of nothing":      {of(v1.ResourceRequirements{Requests: list("cpu", "0")}), v1.PodQOSBestEffort},
		"one limit":                 {of(v1.ResourceRequirements{Limits: list("cpu", "1")}), v1.PodQOSBurstable},
		"both limits":               {of(both), v1.PodQOSGuaranteed},
		"a lower request":           {of(v1.ResourceRequirements{Requests: list("cpu", "500m"), Limits: both.Limits}), v1.PodQOSBurstable},
		"other resources":           {of(v1.ResourceRequirements{Limits: list("example.com/x", "1")}), v1.PodQOSBestEffort},
		"two, one without":          {of(both, v1.ResourceRequirements{}), v1.PodQOSBurstable},
		"an init container without": {withInit, v1.PodQOSBurstable},
		"an ephemeral one without":  {withDebug, v1.PodQOSGuaranteed},
		"the pod's own":             {itsOwn, v1.PodQOSGuaranteed},
		"the apiserver has said":    {told, v1.PodQOSBurstable},
	} {
		if got := QOS(tc.pod); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
