package sim

import (
	"encoding/json"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// warm has what encodes and decodes look at the types it will meet. What it finds it
// keeps for the life of a process, which for a seed is a short one: a mother does it once
// for all of her children. No goroutine may begin here, and none of this is podsync's.
func warm() error {
	for _, obj := range []runtime.Object{
		&v1.Pod{}, &v1.PodList{}, &v1.Node{}, &v1.NodeList{}, &v1.Event{}, &v1.ConfigMap{}, &v1.Secret{}, &v1.PersistentVolumeClaim{}, &v1.PersistentVolume{},
		&storagev1.VolumeAttachment{}, &storagev1.CSIDriver{}, &storagev1.CSINode{}, &metav1.Status{},
	} {
		fill(reflect.ValueOf(obj).Elem(), 0)
		if err := warmObject(obj); err != nil {
			return fmt.Errorf("prepare for objects of type %T: %w", obj, err)
		}
	}
	protoregistry.GlobalTypes.RangeMessages(func(kind protoreflect.MessageType) bool {
		switch kind.Descriptor().FullName().Parent() {
		case "runtime.v1", "csi.v1":
			proto.Merge(kind.New().Interface(), kind.New().Interface())
		}
		return true
	})
	return nil
}

// warmObject encodes and decodes an object in all ways that clients and the apiserver do.
func warmObject(obj runtime.Object) error {
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	codecs := rest.CodecFactoryForGeneratedClient(scheme.Scheme, scheme.Codecs).WithoutConversion()
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeJSON && info.MediaType != runtime.ContentTypeProtobuf {
			continue
		}
		b, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, kinds[0].GroupVersion()), obj)
		if err != nil {
			return err
		}
		if _, err := runtime.Decode(codecs.DecoderToVersion(info.Serializer, kinds[0].GroupVersion()), b); err != nil {
			return err
		}
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, obj.DeepCopyObject()); err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, obj.DeepCopyObject()); err != nil {
		return err
	}
	_, err = strategicpatch.StrategicMergePatch(b, b, obj)
	return err
}

// fill makes what a value points to, and one element of each list and map in it, so that
// nothing of its type stays unseen.
func fill(v reflect.Value, depth int) {
	if depth > 12 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), depth+1)
		}
	case reflect.String:
		v.SetString("x") // lists are merged by names
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[resource.Quantity]() {
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	}
}
