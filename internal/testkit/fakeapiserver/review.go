package fakeapiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
)

// issuedToken is what the server knows of a service account token.
type issuedToken struct {
	user      authnv1.UserInfo
	audiences []string
	expires   time.Time
}

// review answers the resources that are asked and not stored.
func (s *Server) review(q *request) (int, any, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(q.body, nil, nil)
	if err != nil {
		return 0, nil, apierrors.NewBadRequest("decode the review: " + err.Error())
	}
	switch o := obj.(type) {
	case *authnv1.TokenReview:
		s.reviewToken(o)
	case *authzv1.SubjectAccessReview:
		o.Status = authzv1.SubjectAccessReviewStatus{Allowed: true}
		if s.cfg.Authorize != nil {
			o.Status.Allowed, o.Status.Reason = s.cfg.Authorize(o.Spec)
		}
	case *authzv1.SelfSubjectAccessReview:
		o.Status.Allowed = true
	case *authnv1.SelfSubjectReview:
		o.Status.UserInfo = authnv1.UserInfo{Username: "fake"}
	default:
		return 0, nil, apierrors.NewBadRequest(fmt.Sprintf("the body holds a %T", obj))
	}
	setKind(obj)
	return http.StatusCreated, obj, nil
}

func setKind(obj runtime.Object) {
	if kinds, _, err := scheme.Scheme.ObjectKinds(obj); err == nil {
		obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
}

func (s *Server) reviewToken(o *authnv1.TokenReview) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Status = authnv1.TokenReviewStatus{Error: "[invalid bearer token]"}
	if user, ok := s.cfg.Tokens[o.Spec.Token]; ok {
		o.Status = authnv1.TokenReviewStatus{Authenticated: true, User: user, Audiences: o.Spec.Audiences}
		return
	}
	t, ok := s.tokens[o.Spec.Token]
	if !ok || time.Now().After(t.expires) {
		return
	}
	wanted := o.Spec.Audiences
	if len(wanted) == 0 {
		wanted = []string{apiAudience}
	}
	common := slices.DeleteFunc(slices.Clone(wanted), func(a string) bool { return !slices.Contains(t.audiences, a) })
	if len(common) > 0 {
		o.Status = authnv1.TokenReviewStatus{Authenticated: true, User: t.user, Audiences: common}
	}
}

// apiAudience is the audience of tokens that ask for none.
const apiAudience = "https://kubernetes.default.svc.cluster.local"

// createSub does the creations below an object: tokens and bindings.
func (s *Server) createSub(q *request) (int, any, error) {
	switch q.Resource + "/" + q.Subresource {
	case "serviceaccounts/token":
		return s.issueToken(q)
	case "pods/binding":
		return s.bind(q)
	}
	return 0, nil, apierrors.NewMethodNotSupported(q.gr(), "create "+q.Subresource)
}

func (s *Server) issueToken(q *request) (int, any, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(q.body, nil, nil)
	req, ok := obj.(*authnv1.TokenRequest)
	if err != nil || !ok {
		return 0, nil, apierrors.NewBadRequest("the body is not a TokenRequest")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Every namespace has its default account, as if its controller ran.
	e := q.table.objects[key(q.Namespace, q.Name)]
	if e == nil && q.Name != "default" {
		return 0, nil, apierrors.NewNotFound(q.gr(), q.Name)
	}
	setPointer(&req.Spec.ExpirationSeconds, 3600)
	if *req.Spec.ExpirationSeconds < 600 {
		return 0, nil, apierrors.NewInvalid(authnv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), q.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "expirationSeconds"), *req.Spec.ExpirationSeconds, "may not specify a duration less than 10 minutes"),
		})
	}
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = []string{apiAudience}
	}
	if err := s.checkBound(q, req.Spec.BoundObjectRef); err != nil {
		return 0, nil, err
	}
	expires := time.Now().Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second)
	req.Status = authnv1.TokenRequestStatus{ExpirationTimestamp: metav1.NewTime(expires), Token: s.mintLocked(q, req, expires)}
	req.Name, req.Namespace, req.CreationTimestamp = q.Name, q.Namespace, now()
	setKind(req)
	return http.StatusCreated, req, nil
}

func (s *Server) checkBound(q *request, ref *authnv1.BoundObjectReference) error {
	if ref == nil || ref.Kind != "Pod" {
		return nil
	}
	pods := s.tables[corev1.SchemeGroupVersion.WithResource("pods")]
	e := pods.objects[key(q.Namespace, ref.Name)]
	if e == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, ref.Name)
	}
	if uid := metaOf(e.obj).GetUID(); ref.UID != "" && ref.UID != uid {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

// mintLocked makes a token of the usual shape, unsigned.
func (s *Server) mintLocked(q *request, req *authnv1.TokenRequest, expires time.Time) string {
	user := "system:serviceaccount:" + q.Namespace + ":" + q.Name
	claims := map[string]any{
		"aud": req.Spec.Audiences, "exp": expires.Unix(), "iat": time.Now().Unix(), "iss": apiAudience, "sub": user,
		"jti": s.newUID(schema.GroupResource{Resource: "tokens"}, user),
	}
	encode := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	token := encode(map[string]string{"alg": "none"}) + "." + encode(claims) + "." + base64.RawURLEncoding.EncodeToString([]byte("unsigned"))
	s.tokens[token] = issuedToken{
		user: authnv1.UserInfo{
			Username: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + q.Namespace, "system:authenticated"},
		},
		audiences: req.Spec.Audiences, expires: expires,
	}
	return token
}

func (s *Server) bind(q *request) (int, any, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(q.body, nil, nil)
	b, ok := obj.(*corev1.Binding)
	if err != nil || !ok {
		return 0, nil, apierrors.NewBadRequest("the body is not a Binding")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.findLocked(q)
	if err != nil {
		return 0, nil, err
	}
	pod := e.obj.DeepCopyObject().(*corev1.Pod)
	if pod.Spec.NodeName != "" {
		return 0, nil, conflict(q, fmt.Sprintf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName))
	}
	pod.Spec.NodeName = b.Target.Name
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now(),
	})
	s.put(q.table, "create", "binding", q.UserAgent, e, pod)
	return http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
}

// signLocked answers a certificate request as Config.SignCSR says.
func (s *Server) signLocked(csr *certv1.CertificateSigningRequest) {
	if s.cfg.SignCSR == nil {
		return
	}
	cert, err := s.cfg.SignCSR(csr.DeepCopy())
	if cert == nil && err == nil {
		return
	}
	cond := certv1.CertificateSigningRequestCondition{
		Type: certv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", LastUpdateTime: now(), LastTransitionTime: now(),
	}
	if err != nil {
		cond.Type, cond.Reason, cond.Message = certv1.CertificateFailed, "SigningFailed", err.Error()
	}
	csr.Status.Conditions = append(csr.Status.Conditions, cond)
	csr.Status.Certificate = cert
}
