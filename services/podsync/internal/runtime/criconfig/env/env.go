package env

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/polylet/polylet/services/podsync/internal/runtime/criconfig/downward"
)

// Input is what a container's environment is made from.
type Input struct {
	Pod       *v1.Pod
	Container *v1.Container
	Node      downward.Node
	// Services are the variables of the services around the pod.
	Services map[string]string
	// ConfigMap and Secret read an object of the pod's namespace.
	ConfigMap func(name string) (*v1.ConfigMap, error)
	Secret    func(name string) (*v1.Secret, error)
	// File reads a file of one of the pod's volumes; fs.ErrNotExist is passed
	// on as found false.
	File func(volume, path string) (text string, found bool, err error)

	files *files // Build's
}

// Build computes the environment. What the container says itself comes before
// what services say; a variable may use those before it and services'. One that is
// larger than Most is an error that names the variable.
func Build(in Input) (map[string]string, error) {
	vars, left, err := in.fromAll()
	if err != nil {
		return nil, err
	}
	in.files = newFiles(in.File, in.Container.Env)
	lookup := func(name string) (string, bool) {
		if v, ok := vars[name]; ok {
			return v, true
		}
		v, ok := in.Services[name]
		return v, ok
	}
	for i := range in.Container.Env {
		e := &in.Container.Env[i]
		value, found, err := in.one(e, left, lookup)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		vars[e.Name] = value
		if left -= len(e.Name) + len(value); left < 0 {
			return nil, fmt.Errorf("the environment up to variable %s: %w", e.Name, ErrTooLarge)
		}
	}
	for name, value := range in.Services {
		if _, ok := vars[name]; !ok {
			vars[name] = value
		}
	}
	return vars, nil
}

// one is the value of one variable, of at most so many bytes where it is expanded.
func (in *Input) one(e *v1.EnvVar, most int, lookup func(string) (string, bool)) (value string, found bool, err error) {
	if e.ValueFrom != nil && e.Value == "" {
		return in.value(e.ValueFrom)
	}
	if value, err = expand(e.Value, most, lookup); err != nil {
		return "", false, fmt.Errorf("the environment up to variable %s: %w", e.Name, err)
	}
	return value, true, nil
}

// Sorted lists an environment by name, so that it is the same each time.
func Sorted(vars map[string]string) []string { return slices.Sorted(maps.Keys(vars)) }

func optional(o *bool) bool { return o != nil && *o }

// value is what a valueFrom gives; found is false for an optional one that is absent.
func (in *Input) value(from *v1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = downward.Field(in.Pod, from.FieldRef.FieldPath, in.Node)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = downward.Resource(in.Pod, in.Container, from.ResourceFieldRef, in.Node.Allocatable)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		return in.configMapKey(from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return in.secretKey(from.SecretKeyRef)
	case from.FileKeyRef != nil && in.File != nil:
		return in.fileKey(from.FileKeyRef)
	}
	return "", true, nil
}

func (in *Input) configMapKey(ref *v1.ConfigMapKeySelector) (string, bool, error) {
	cm, err := in.ConfigMap(ref.Name)
	if apierrors.IsNotFound(err) && optional(ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	value, ok := cm.Data[ref.Key]
	if !ok && !optional(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, in.Pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func (in *Input) secretKey(ref *v1.SecretKeySelector) (string, bool, error) {
	secret, err := in.Secret(ref.Name)
	if apierrors.IsNotFound(err) && optional(ref.Optional) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	value, ok := secret.Data[ref.Key]
	if !ok && !optional(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, in.Pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
}

func (in *Input) fileKey(ref *v1.FileKeySelector) (string, bool, error) {
	file, err := in.files.get(ref.VolumeName, ref.Path)
	if err != nil {
		return "", false, fmt.Errorf("couldn't read environment file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if !file.found && optional(ref.Optional) {
		return "", false, nil
	}
	if !file.found {
		return "", false, fmt.Errorf("environment file %q of volume %q does not exist", ref.Path, ref.VolumeName)
	}
	value, ok, err := file.value(ref.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse environment file %q of volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if !ok && !optional(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q of volume %q", ref.Key, ref.Path, ref.VolumeName)
	}
	return value, ok, nil
}
