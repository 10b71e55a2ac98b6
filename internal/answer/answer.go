// Package answer owns what counts as an answer of an apiserver. A proxy, or an apiserver
// that is broken, may answer 200 with something else: nothing at all, a Status, an object
// of another kind. client-go makes of that an object in which nothing stands, and no
// error: a list without pods, a CSINode without an owner. It must never refuse what an
// apiserver answers in order.
package answer

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/polylet/polylet/internal/rpcerr"
)

const hint = "an apiserver does not answer so: check what stands between it and this node, and that the kubeconfig names an apiserver"

// List returns err, or an error when list is not what an apiserver answers to a LIST:
// every list has a version.
func List(list metav1.ListInterface, err error) error {
	if err != nil {
		return err
	}
	return Version(list.GetResourceVersion())
}

// Version returns an error when a list is of no version.
func Version(version string) error {
	if version == "" {
		return fmt.Errorf("what was answered is no list of what was asked for, it has no resourceVersion; %s: %w", hint, rpcerr.ErrUnavailable)
	}
	return nil
}

// Object returns err, or an error when object is not what an apiserver answers to a
// request about the object of this name: it has that name and a UID.
func Object(object metav1.Object, name string, err error) error {
	switch {
	case err != nil:
		return err
	case object.GetName() != name:
		return fmt.Errorf("what was answered is no object of the name %q that was asked for, but of the name %q; %s: %w", name, object.GetName(), hint, rpcerr.ErrUnavailable)
	}
	if err := Whole(object); err != nil {
		return fmt.Errorf("what was answered is no object of an apiserver, it has no %w; %s: %w", err, hint, rpcerr.ErrUnavailable)
	}
	return nil
}

// Whole returns an error that names what is missing when object is none that an apiserver
// keeps: such a one has a name and a UID.
func Whole(object metav1.Object) error {
	switch {
	case object.GetName() == "":
		return errors.New("metadata.name")
	case object.GetUID() == "":
		return errors.New("metadata.uid")
	}
	return nil
}

// ErrNotSaid is what Deleted returns of an answer that does not say what was deleted.
var ErrNotSaid = errors.New("the answer does not say that it was deleted")

// Deleted returns the error of a DELETE, and ErrNotSaid of one that was answered well, but
// not with the object of this UID, or its name, as an apiserver answers: it may be there
// still.
func Deleted(result rest.Result, uid types.UID) error {
	if err := result.Error(); err != nil {
		return err
	}
	object, err := result.Get()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSaid, err)
	}
	switch deleted := object.(type) {
	case metav1.Object:
		if deleted.GetUID() == uid {
			return nil
		}
	case *metav1.Status: // of what is not returned whole
		if deleted.Details != nil && deleted.Details.UID == uid {
			return nil
		}
	}
	return ErrNotSaid
}
