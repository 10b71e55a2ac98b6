package env

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// fromAll is what envFrom gives, and how much of Most is left beside it.
func (in *Input) fromAll() (vars map[string]string, left int, err error) {
	vars, left = map[string]string{}, Most
	for _, src := range lastOnes(in.Container.EnvFrom) {
		if left, err = in.from(vars, left, src); err != nil {
			return nil, 0, err
		}
	}
	return vars, left, nil
}

// lastOnes leaves out of a list what is in it again behind that, and sets the same
// variables there: a name takes a few bytes of a spec, and there may be ten thousands of
// an object that has as many keys.
func lastOnes(list []v1.EnvFromSource) []*v1.EnvFromSource {
	type source struct {
		prefix, configMap, secret string
		optional                  bool
	}
	seen := map[source]bool{}
	var out []*v1.EnvFromSource
	for i := range slices.Backward(list) {
		src := &list[i]
		this := source{prefix: src.Prefix}
		if ref := src.ConfigMapRef; ref != nil {
			this.configMap, this.optional = ref.Name, optional(ref.Optional)
		} else if ref := src.SecretRef; ref != nil {
			this.secret, this.optional = ref.Name, optional(ref.Optional)
		}
		if !seen[this] {
			seen[this] = true
			out = append(out, src)
		}
	}
	slices.Reverse(out)
	return out
}

// from adds all variables of one object, of at most so many bytes, and returns how many
// of these are left.
func (in *Input) from(vars map[string]string, left int, src *v1.EnvFromSource) (int, error) {
	switch {
	case src.ConfigMapRef != nil:
		cm, err := in.ConfigMap(src.ConfigMapRef.Name)
		if apierrors.IsNotFound(err) && optional(src.ConfigMapRef.Optional) {
			return left, nil
		}
		if err != nil {
			return left, err
		}
		return putAll(vars, left, src.Prefix, cm.Data)
	case src.SecretRef != nil:
		secret, err := in.Secret(src.SecretRef.Name)
		if apierrors.IsNotFound(err) && optional(src.SecretRef.Optional) {
			return left, nil
		}
		if err != nil {
			return left, err
		}
		return putAll(vars, left, src.Prefix, secret.Data)
	}
	return left, nil
}

// putAll sets the variables of an object, if there is room for them: a copy of a secret's
// value is made for each time that it is named.
func putAll[T string | []byte](vars map[string]string, left int, prefix string, data map[string]T) (int, error) {
	for key, value := range data {
		name := prefix + key
		if !validName(name) {
			continue
		}
		if before, there := vars[name]; there {
			left += len(name) + len(before)
		}
		left -= len(name) + len(value)
	}
	if left < 0 {
		return left, fmt.Errorf("the environment of envFrom: %w", ErrTooLarge)
	}
	for key, value := range data {
		if name := prefix + key; validName(name) {
			vars[name] = string(value)
		}
	}
	return left, nil
}
