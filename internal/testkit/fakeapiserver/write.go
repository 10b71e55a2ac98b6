package fakeapiserver

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// decode reads a body, JSON or protobuf, into the stored type.
func (q *request) decode(data []byte) (runtime.Object, error) {
	gvk := q.gv().WithKind(q.res.gvk.Kind)
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, &gvk, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest("decode the " + gvk.Kind + ": " + err.Error())
	}
	if q.gv() == eventsGV {
		return fromEvents(obj)
	}
	if reflect.TypeOf(obj) != reflect.TypeOf(q.res.newObject()) {
		return nil, apierrors.NewBadRequest("the body holds a " + obj.GetObjectKind().GroupVersionKind().Kind + ", not a " + gvk.Kind)
	}
	return obj, nil
}

func (s *Server) create(q *request) (int, any, error) {
	if q.Subresource != "" {
		return s.createSub(q)
	}
	obj, err := q.decode(q.body)
	if err != nil {
		return 0, nil, err
	}
	if err := checkOwners(q, nil, obj); err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.prepareCreate(q, obj); err != nil {
		return 0, nil, err
	}
	m := metaOf(obj)
	if q.table.objects[key(m.GetNamespace(), m.GetName())] != nil {
		return 0, nil, apierrors.NewAlreadyExists(q.gr(), m.GetName())
	}
	e := s.put(q.table, "create", "", q.UserAgent, nil, obj)
	return http.StatusCreated, q.present(e), nil
}

func (s *Server) prepareCreate(q *request, obj runtime.Object) error {
	m := metaOf(obj)
	if m.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if q.res.namespaced {
		if m.GetNamespace() == "" {
			m.SetNamespace(q.Namespace)
		}
		if q.Namespace == "" || m.GetNamespace() != q.Namespace {
			return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
		}
	}
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(s.generatedName(m.GetGenerateName()))
	}
	if m.GetName() == "" {
		return apierrors.NewInvalid(q.res.gvk.GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("metadata", "name"), "name or generateName is required"),
		})
	}
	m.SetUID(s.newUID(q.res.gr(), key(m.GetNamespace(), m.GetName())))
	m.SetCreationTimestamp(now())
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetManagedFields(nil)
	if q.res.generation {
		m.SetGeneration(1)
	}
	if status := part(obj, "Status"); status.IsValid() && q.res.name != "nodes" {
		status.SetZero()
	}
	return s.onCreate(obj)
}

func (s *Server) update(q *request) (int, any, error) {
	obj, err := q.decode(q.body)
	if err != nil {
		return 0, nil, err
	}
	if m := metaOf(obj); m.GetName() != q.Name {
		return 0, nil, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.findLocked(q)
	if err != nil {
		return 0, nil, err
	}
	if uid := metaOf(obj).GetUID(); uid != "" && uid != metaOf(old.obj).GetUID() {
		return 0, nil, conflict(q, "Precondition failed: UID in precondition: "+string(uid)+", UID in object meta: "+string(metaOf(old.obj).GetUID()))
	}
	return s.replaceLocked(q, old, obj)
}

func conflict(q *request, why string) error {
	return apierrors.NewConflict(q.gr(), q.Name, &conflictReason{why})
}

type conflictReason struct{ why string }

func (c *conflictReason) Error() string { return c.why }

func (s *Server) patch(q *request) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := s.findLocked(q)
	if err != nil {
		return 0, nil, err
	}
	obj, err := q.applyPatch(old)
	if err != nil {
		return 0, nil, err
	}
	if uid := metaOf(obj).GetUID(); uid != metaOf(old.obj).GetUID() {
		return 0, nil, apierrors.NewInvalid(q.res.gvk.GroupKind(), q.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable"),
		})
	}
	return s.replaceLocked(q, old, obj)
}

// applyPatch returns what a patch makes of an entry.
func (q *request) applyPatch(old *entry) (runtime.Object, error) {
	kind, _, _ := strings.Cut(q.contentType, ";")
	if types.PatchType(kind) == types.StrategicMergePatchType && q.gv() != eventsGV {
		return q.mergeStrategically(old)
	}
	patched, err := q.patchJSON(types.PatchType(kind), old)
	if err != nil {
		return nil, err
	}
	return q.decode(patched)
}

// mergeStrategically works on maps, as the real apiserver does, and not on JSON.
func (q *request) mergeStrategically(old *entry) (runtime.Object, error) {
	whole := old.obj
	if q.Subresource == "status" {
		whole = q.withoutSpec(whole) // the spec takes no part
	}
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(whole)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var patch map[string]any
	if err := utiljson.Unmarshal(q.body, &patch); err != nil {
		return nil, apierrors.NewBadRequest("decode the patch: " + err.Error())
	}
	obj := q.res.newObject()
	merged, err := strategicpatch.StrategicMergeMapPatch(original, patch, obj)
	if err != nil {
		return nil, apierrors.NewBadRequest("apply the patch: " + err.Error())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(merged, obj); err != nil {
		return nil, apierrors.NewBadRequest("decode the patched object: " + err.Error())
	}
	return obj, nil
}

// withoutSpec is an object's metadata and status.
func (q *request) withoutSpec(obj runtime.Object) runtime.Object {
	out := q.res.newObject()
	for _, name := range []string{"TypeMeta", "ObjectMeta", "Status"} {
		setPart(out, obj, name)
	}
	return out
}

// patchJSON applies the other kinds of patches.
func (q *request) patchJSON(kind types.PatchType, old *entry) (out []byte, err error) {
	original := old.json()
	if q.gv() == eventsGV {
		original = eventsJSON(old.obj)
	}
	switch kind {
	case types.StrategicMergePatchType:
		typed, schemeErr := scheme.Scheme.New(q.gv().WithKind(q.res.gvk.Kind))
		if schemeErr != nil {
			return nil, apierrors.NewInternalError(schemeErr)
		}
		out, err = strategicpatch.StrategicMergePatch(original, q.body, typed)
	case types.MergePatchType:
		out, err = jsonpatch.MergePatch(original, q.body)
	case types.JSONPatchType:
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(q.body); err == nil {
			out, err = p.Apply(original)
		}
	default:
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", q.gr(), q.Name,
			"the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json", 0, false)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("apply the patch: " + err.Error())
	}
	return out, nil
}

// replaceLocked stores obj in place of old, as far as the subresource allows.
func (s *Server) replaceLocked(q *request, old *entry, obj runtime.Object) (int, any, error) {
	m, om := metaOf(obj), metaOf(old.obj)
	if rv := m.GetResourceVersion(); rv != "" && rv != om.GetResourceVersion() {
		return 0, nil, conflict(q, "the object has been modified; please apply your changes to the latest version and try again")
	}
	if err := checkOwners(q, old.obj, obj); err != nil {
		return 0, nil, err
	}
	switch q.Subresource {
	case "":
		setPart(obj, old.obj, "Status")
	case "status", "approval":
		// Objects never change: all but the status may be shared.
		kept := q.res.newObject()
		reflect.ValueOf(kept).Elem().Set(reflect.ValueOf(old.obj).Elem())
		setPart(kept, obj, "Status")
		km := metaOf(kept)
		km.SetLabels(m.GetLabels())
		km.SetAnnotations(m.GetAnnotations())
		obj, m = kept, km
	case "ephemeralcontainers":
		if err := addEphemeral(q, old, obj); err != nil {
			return 0, nil, err
		}
	default:
		return 0, nil, apierrors.NewMethodNotSupported(q.gr(), q.Verb+" "+q.Subresource)
	}
	keepMeta(obj, old.obj, q.res.generation)
	if err := checkUpdate(q, old.obj, obj); err != nil {
		return 0, nil, err
	}
	e := s.put(q.table, q.Verb, q.Subresource, q.UserAgent, old, obj)
	if m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 && len(om.GetFinalizers()) > 0 && graceOver(obj) {
		s.drop(q.table, q.UserAgent, e)
	}
	return http.StatusOK, q.present(e), nil
}

// addEphemeral leaves of obj, a pod, nothing new but more ephemeral containers.
func addEphemeral(q *request, old *entry, obj runtime.Object) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return apierrors.NewMethodNotSupported(q.gr(), q.Verb+" "+q.Subresource)
	}
	was := old.obj.(*corev1.Pod)
	asked := pod.Spec.EphemeralContainers
	for _, c := range was.Spec.EphemeralContainers {
		if !slices.ContainsFunc(asked, func(a corev1.EphemeralContainer) bool { return a.Name == c.Name }) {
			return apierrors.NewInvalid(q.res.gvk.GroupKind(), q.Name, field.ErrorList{
				field.Forbidden(field.NewPath("spec", "ephemeralContainers"), "existing ephemeral containers \""+c.Name+"\" may not be removed"),
			})
		}
	}
	pod.Spec, pod.Status = *was.Spec.DeepCopy(), was.Status
	pod.Spec.EphemeralContainers = asked
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		plain := corev1.Container(c.EphemeralContainerCommon)
		defaultContainer(&plain, false)
		c.EphemeralContainerCommon = corev1.EphemeralContainerCommon(plain)
	}
	return nil
}

// keepMeta restores what no client may change.
func keepMeta(obj, old runtime.Object, generation bool) {
	m, om := metaOf(obj), metaOf(old)
	m.SetUID(om.GetUID())
	m.SetNamespace(om.GetNamespace())
	m.SetGenerateName(om.GetGenerateName())
	m.SetCreationTimestamp(om.GetCreationTimestamp())
	m.SetDeletionTimestamp(om.GetDeletionTimestamp())
	m.SetDeletionGracePeriodSeconds(om.GetDeletionGracePeriodSeconds())
	m.SetGeneration(om.GetGeneration())
	obj.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
	spec := part(obj, "Spec")
	if generation && spec.IsValid() && !equality.Semantic.DeepEqual(spec.Interface(), part(old, "Spec").Interface()) {
		m.SetGeneration(om.GetGeneration() + 1)
	}
}
