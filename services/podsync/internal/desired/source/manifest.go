package source

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/services/podsync/internal/desired/defaults"
	"github.com/polylet/polylet/services/podsync/internal/desired/validate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// decoder reads pods; build it with newDecoder.
type decoder struct{ strict runtime.Serializer }

func newDecoder() (*decoder, error) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("prepare to read manifests: %w", err)
	}
	return &decoder{strict: kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme, kjson.SerializerOptions{Strict: true})}, nil
}

// decode reads one pod from YAML or JSON. unknown names fields that no pod has;
// they are ignored, as the apiserver does for most clients.
func (d *decoder) decode(data []byte) (pod *v1.Pod, unknown string, err error) {
	text, more, err := toJSON(data)
	if err != nil {
		return nil, "", err
	}
	pod, unknown, err = d.decodeJSON(text)
	return pod, strings.Trim(unknown+"; "+more, "; "), err
}

// toJSON reads the first document of a YAML or JSON text; more says what of
// the text does not count.
func toJSON(data []byte) (text []byte, more string, err error) {
	if !utf8.Valid(data) {
		return nil, "", errors.New("it is not UTF-8 text; save it in that encoding")
	}
	if text, err = yaml.YAMLToJSON(data); err != nil {
		return nil, "", fmt.Errorf("it is neither YAML nor JSON: %w", err)
	}
	if string(text) == "null" {
		return nil, "", errors.New("it is empty; write a Pod into it or remove it")
	}
	if documents(data) > 1 {
		more = "it holds more than one YAML document, and only the first counts; write one file for each pod"
	}
	return text, more, nil
}

// documents counts the YAML documents that hold something.
func documents(data []byte) int {
	n, filled := 0, false
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("---")) {
			filled = false
			continue
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !filled {
			n, filled = n+1, true
		}
	}
	return n
}

// element is one pod of a text that may hold several.
type element struct {
	data []byte
	// name is what the text says, also of one that is no pod; empty when it does not.
	name    types.NamespacedName
	pod     *v1.Pod
	unknown string
	err     error
}

// decodeAll reads a Pod or a PodList. The error is of the text as a whole; one
// of an element stands with it.
func (d *decoder) decodeAll(data []byte) ([]element, error) {
	text, more, err := toJSON(data)
	if err != nil {
		return nil, err
	}
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Items           []map[string]json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(text, &list.TypeMeta); err != nil || list.Kind != "PodList" {
		e := element{data: text}
		e.pod, e.unknown, e.err = d.decodeJSON(text)
		e.unknown = strings.Trim(e.unknown+"; "+more, "; ")
		if e.err != nil {
			return nil, e.err
		}
		e.name = types.NamespacedName{Namespace: e.pod.Namespace, Name: e.pod.Name}
		return []element{e}, nil
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("it cannot be read as a PodList: %w; check that items is a list of pods", err)
	}
	out := make([]element, 0, len(list.Items))
	for _, item := range list.Items {
		if item == nil {
			out = append(out, element{data: []byte("null"), err: errors.New("it is null; write a Pod there or remove it")})
			continue
		}
		if _, named := item["kind"]; !named { // the list says what they are
			item["kind"], item["apiVersion"] = json.RawMessage(`"Pod"`), json.RawMessage(`"v1"`)
		}
		e := element{name: nameIn(item["metadata"])}
		if e.data, e.err = json.Marshal(item); e.err == nil {
			e.pod, e.unknown, e.err = d.decodeJSON(e.data)
		}
		out = append(out, e)
	}
	return out, nil
}

// nameIn reads a pod's name in its metadata.
func nameIn(metadata json.RawMessage) (name types.NamespacedName) {
	_ = json.Unmarshal(metadata, &name) // the fields have these names; what is wrong is told of the whole
	return name
}

func (d *decoder) decodeJSON(text []byte) (pod *v1.Pod, unknown string, err error) {
	obj, _, err := d.strict.Decode(text, nil, nil)
	if err != nil {
		if !runtime.IsStrictDecodingError(err) || obj == nil {
			return nil, "", fmt.Errorf("it cannot be read as a Kubernetes object: %w; check apiVersion, kind and the types of the fields", err)
		}
		unknown = err.Error()
	}
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return nil, "", fmt.Errorf("it holds a %s; a static pod has apiVersion: v1 and kind: Pod", obj.GetObjectKind().GroupVersionKind().Kind)
	}
	return pod, unknown, nil
}

// origin is where a static pod was found.
type origin struct {
	node string
	src  string // File or HTTP
	path string // or URL
	seen time.Time
	// mayRefer lets the pod name objects of the apiserver, except for claims.
	mayRefer bool
}

// finish completes and checks a decoded manifest.
func finish(pod *v1.Pod, from origin) error {
	if err := complete(pod, from); err != nil {
		return err
	}
	errs := validate.Pod(pod)
	if from.mayRefer {
		errs = append(claims(pod), errs...)
	} else {
		errs = append(references(pod), errs...)
	}
	return errs.ToAggregate()
}

// complete makes a decoded manifest the pod that runs on this node: identity,
// annotations, tolerations and defaults.
func complete(pod *v1.Pod, from origin) error {
	uid := pod.UID
	if uid == "" {
		var err error
		if uid, err = staticUID(pod, from); err != nil {
			return err
		}
	}
	pod.UID = uid
	if pod.Name != "" {
		pod.Name += "-" + strings.ToLower(from.node)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = from.node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	delete(pod.Annotations, podutil.AnnotationMirror)
	pod.Annotations[podutil.AnnotationHash] = string(uid)
	pod.Annotations[podutil.AnnotationSource] = from.src
	pod.Annotations[podutil.AnnotationSeen] = from.seen.Format(time.RFC3339Nano)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	if from.src == File && !toleratesAllNoExecute(pod.Spec.Tolerations) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	}
	pod.Status = v1.PodStatus{Phase: v1.PodPending}
	defaults.Pod(pod)
	return nil
}

func toleratesAllNoExecute(list []v1.Toleration) bool {
	for _, t := range list {
		if t.Operator == v1.TolerationOpExists && t.Key == "" && (t.Effect == v1.TaintEffectNoExecute || t.Effect == "") && t.TolerationSeconds == nil {
			return true
		}
	}
	return false
}

// staticUID is stable over restarts and changes with the manifest's content,
// its path and the node: FNV-128a over the pod as JSON, before defaults, so
// that another release's defaults restart nothing.
func staticUID(pod *v1.Pod, from origin) (types.UID, error) {
	text, err := json.Marshal(pod)
	if err != nil {
		return "", fmt.Errorf("encode the pod for its UID: %w", err)
	}
	hash := fnv.New128a()
	hash.Write(text)
	fmt.Fprintf(hash, "host:%s", from.node)
	kind := "file"
	if from.src == HTTP {
		kind = "url"
	}
	fmt.Fprintf(hash, "%s:%s", kind, from.path)
	return types.UID(hex.EncodeToString(hash.Sum(nil))), nil
}
