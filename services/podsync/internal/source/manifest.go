package source

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/polylet/polylet/services/podsync/internal/source/defaults"
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
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, "", fmt.Errorf("it is neither YAML nor JSON: %w", err)
	}
	if string(text) == "null" {
		return nil, "", errors.New("it is empty; write a Pod into it or remove it")
	}
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
	src  string // File
	path string
	seen time.Time
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
	delete(pod.Annotations, AnnotationMirror)
	pod.Annotations[AnnotationHash] = string(uid)
	pod.Annotations[AnnotationSource] = from.src
	pod.Annotations[AnnotationSeen] = from.seen.Format(time.RFC3339Nano)
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	if !toleratesAllNoExecute(pod.Spec.Tolerations) {
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
	fmt.Fprintf(hash, "%s:%s", from.src, from.path)
	return types.UID(hex.EncodeToString(hash.Sum(nil))), nil
}
