package fakeapiserver

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// resource is one kind of object that is stored.
type resource struct {
	gvk        schema.GroupVersionKind
	name       string // plural
	namespaced bool
	generation bool // metadata.generation counts changes of the spec
}

func (r *resource) gvr() schema.GroupVersionResource {
	return r.gvk.GroupVersion().WithResource(r.name)
}
func (r *resource) gr() schema.GroupResource { return r.gvr().GroupResource() }

func (r *resource) newObject() runtime.Object {
	obj, err := scheme.Scheme.New(r.gvk)
	if err != nil {
		panic(err) // the table below names a kind that client-go does not have
	}
	return obj
}

// stored lists the resources: group/version, plural, kind; a + after the plural marks
// namespaced ones, a * those that count generations.
const stored = `
v1 pods+* Pod
v1 nodes Node
v1 namespaces Namespace
v1 events+ Event
v1 configmaps+ ConfigMap
v1 secrets+ Secret
v1 services+ Service
v1 endpoints+ Endpoints
v1 serviceaccounts+ ServiceAccount
v1 persistentvolumes PersistentVolume
v1 persistentvolumeclaims+ PersistentVolumeClaim
coordination.k8s.io/v1 leases+ Lease
node.k8s.io/v1 runtimeclasses RuntimeClass
storage.k8s.io/v1 csinodes CSINode
storage.k8s.io/v1 csidrivers CSIDriver
storage.k8s.io/v1 volumeattachments VolumeAttachment
resource.k8s.io/v1 resourceclaims+ ResourceClaim
resource.k8s.io/v1 resourceslices* ResourceSlice
certificates.k8s.io/v1 certificatesigningrequests CertificateSigningRequest
certificates.k8s.io/v1beta1 clustertrustbundles ClusterTrustBundle
apps/v1 daemonsets+* DaemonSet
`

func resources() map[schema.GroupVersionResource]*resource {
	all := map[schema.GroupVersionResource]*resource{}
	for line := range strings.Lines(strings.TrimSpace(stored)) {
		f := strings.Fields(line)
		gv, err := schema.ParseGroupVersion(f[0])
		if err != nil {
			panic(err)
		}
		r := &resource{
			gvk: gv.WithKind(f[2]), name: strings.TrimRight(f[1], "+*"),
			namespaced: strings.Contains(f[1], "+"), generation: strings.Contains(f[1], "*"),
		}
		all[r.gvr()] = r
	}
	return all
}

// metaOf returns an object's metadata. Everything stored has it.
func metaOf(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return m
}

// part returns the field Spec or Status of an object; the zero Value when it has none.
func part(obj runtime.Object, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

func setPart(to, from runtime.Object, name string) {
	if dst := part(to, name); dst.IsValid() {
		dst.Set(part(from, name))
	}
}

// fieldsOf are the fields that a selector can name.
func fieldsOf(obj runtime.Object) fields.Set {
	m := metaOf(obj)
	set := fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()}
	switch o := obj.(type) {
	case *corev1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
		set["spec.restartPolicy"] = string(o.Spec.RestartPolicy)
		set["spec.schedulerName"] = o.Spec.SchedulerName
		set["spec.serviceAccountName"] = o.Spec.ServiceAccountName
		set["spec.hostNetwork"] = boolString(o.Spec.HostNetwork)
		set["status.phase"] = string(o.Status.Phase)
		set["status.podIP"] = o.Status.PodIP
		set["status.nominatedNodeName"] = o.Status.NominatedNodeName
	case *corev1.Node:
		set["spec.unschedulable"] = boolString(o.Spec.Unschedulable)
	case *corev1.Secret:
		set["type"] = string(o.Type)
	case *corev1.Event:
		set["involvedObject.kind"] = o.InvolvedObject.Kind
		set["involvedObject.namespace"] = o.InvolvedObject.Namespace
		set["involvedObject.name"] = o.InvolvedObject.Name
		set["involvedObject.uid"] = string(o.InvolvedObject.UID)
		set["involvedObject.apiVersion"] = o.InvolvedObject.APIVersion
		set["involvedObject.fieldPath"] = o.InvolvedObject.FieldPath
		set["reason"] = o.Reason
		set["reportingComponent"] = o.ReportingController
		set["source"] = o.Source.Component
		set["type"] = o.Type
	}
	addNodeFields(set, obj)
	return set
}

func boolString(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
