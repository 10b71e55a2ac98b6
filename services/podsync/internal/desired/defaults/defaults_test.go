package defaults

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

const given = `
metadata: {name: p}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  initContainers: [{name: i, image: "r:5000/a/b"}]
  containers:
  - name: c
    image: r:5000/a/b:1
    ports: [{containerPort: 80}]
    env: [{name: N, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    resources: {limits: {cpu: "0.0001"}}
    livenessProbe: {httpGet: {port: 80}}
    readinessProbe: {grpc: {port: 1}, periodSeconds: 3}
    lifecycle: {preStop: {httpGet: {port: 80}}}
    securityContext: {}
  volumes:
  - {name: e}
  - {name: s, secret: {secretName: x}}
  - {name: c, configMap: {name: x}}
  - {name: h, hostPath: {path: /x}}
  - {name: d, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: p, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}]}}
  - {name: i, image: {reference: "x:1"}}
`

const wanted = `
metadata: {name: p}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  priority: 2000001000
  dnsPolicy: ClusterFirst
  restartPolicy: Always
  schedulerName: default-scheduler
  terminationGracePeriodSeconds: 30
  enableServiceLinks: true
  securityContext: {}
  initContainers:
  - {name: i, image: "r:5000/a/b", imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}
  containers:
  - name: c
    image: r:5000/a/b:1
    imagePullPolicy: IfNotPresent
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    ports: [{containerPort: 80, hostPort: 80, protocol: TCP}]
    env: [{name: N, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]
    resources: {limits: {cpu: 1m}, requests: {cpu: 1m}}
    livenessProbe: {httpGet: {port: 80, path: /, scheme: HTTP}, timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3}
    readinessProbe: {grpc: {port: 1, service: ""}, timeoutSeconds: 1, periodSeconds: 3, successThreshold: 1, failureThreshold: 3}
    lifecycle: {preStop: {httpGet: {port: 80, path: /, scheme: HTTP}}}
    securityContext: {}
  volumes:
  - {name: e, emptyDir: {}}
  - {name: s, secret: {secretName: x, defaultMode: 420}}
  - {name: c, configMap: {name: x, defaultMode: 420}}
  - {name: h, hostPath: {path: /x, type: ""}}
  - {name: d, downwardAPI: {defaultMode: 420, items: [{path: a, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}}
  - {name: p, projected: {defaultMode: 420, sources: [{serviceAccountToken: {path: t, expirationSeconds: 3600}}, {downwardAPI: {items: [{path: a, fieldRef: {apiVersion: v1, fieldPath: metadata.name}}]}}]}}
  - {name: i, image: {reference: "x:1", pullPolicy: IfNotPresent}}
status: {phase: Pending, qosClass: Burstable}
`

func TestWhatIsOpenIsFilledInAsTheApiserverDoes(t *testing.T) {
	got, want := parse(t, given), parse(t, wanted)
	Pod(got)
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
}

func TestWhatIsSetStaysAndTwiceIsAsOnce(t *testing.T) {
	once := parse(t, wanted)
	once.Spec.Containers[0].ImagePullPolicy = v1.PullNever
	once.Spec.Containers[0].LivenessProbe.PeriodSeconds = 77
	twice := once.DeepCopy()
	Pod(twice)
	if diff := cmp.Diff(once, twice, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Fatalf("-once +twice\n%s", diff)
	}
}

func TestPullPolicyFollowsTheTag(t *testing.T) {
	for image, want := range map[string]v1.PullPolicy{
		"a": v1.PullAlways, "a:latest": v1.PullAlways, "a:1": v1.PullIfNotPresent, "r:5000/a": v1.PullAlways,
		"r:5000/a:2": v1.PullIfNotPresent, "a@sha256:0": v1.PullIfNotPresent, "a:latest@sha256:0": v1.PullIfNotPresent,
	} {
		if got := PullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
