package fakeapiserver

import (
	certv1 "k8s.io/api/certificates/v1"
	certv1beta1 "k8s.io/api/certificates/v1beta1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// addNodeFields adds the fields of the kinds outside the core group.
func addNodeFields(set fields.Set, obj runtime.Object) {
	switch o := obj.(type) {
	case *certv1.CertificateSigningRequest:
		set["spec.signerName"] = o.Spec.SignerName
	case *certv1beta1.PodCertificateRequest:
		set["spec.nodeName"] = string(o.Spec.NodeName)
	case *resourcev1.ResourceSlice:
		set["spec.driver"] = o.Spec.Driver
		set["spec.nodeName"] = ""
		if o.Spec.NodeName != nil {
			set["spec.nodeName"] = *o.Spec.NodeName
		}
	}
}

// selector picks objects by namespace, labels and fields.
type selector struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (s *Server) parseSelector(r *resource, namespace, labelText, fieldText string) (selector, error) {
	ls, err := labels.Parse(labelText)
	if err != nil {
		return selector{}, apierrors.NewBadRequest("unable to parse the label selector: " + err.Error())
	}
	fs, err := fields.ParseSelector(fieldText)
	if err != nil {
		return selector{}, apierrors.NewBadRequest("unable to parse the field selector: " + err.Error())
	}
	known := fieldsOf(r.newObject())
	for _, req := range fs.Requirements() {
		if _, ok := known[req.Field]; !ok {
			return selector{}, apierrors.NewBadRequest("field label not supported: " + req.Field)
		}
	}
	return selector{namespace: namespace, labels: ls, fields: fs}, nil
}

func (s selector) matches(obj runtime.Object) bool {
	if obj == nil {
		return false
	}
	m := metaOf(obj)
	if s.namespace != "" && m.GetNamespace() != s.namespace {
		return false
	}
	return s.labels.Matches(labels.Set(m.GetLabels())) && (s.fields.Empty() || s.fields.Matches(fieldsOf(obj)))
}
