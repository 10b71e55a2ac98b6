// Package contract is what polylet relies on in a kube-apiserver, as test cases that run
// against fakeapiserver and against the real one: where the two differ, the fake is
// mended. A case must never know which server it talks to.
package contract

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Case is one story.
type Case struct {
	// Name is a sentence about behaviour.
	Name string
	run  func(*kit)
}

// Run plays the case in a namespace that exists and that the cases share.
func (c Case) Run(t *testing.T, client kubernetes.Interface, namespace string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c.run(&kit{t: t, ctx: ctx, client: client, ns: namespace, pods: client.CoreV1().Pods(namespace)})
}

// Cases returns all of them.
func Cases() []Case { return slices.Concat(writeCases, statusCases, deleteCases) }

type kit struct {
	t      *testing.T
	ctx    context.Context
	client kubernetes.Interface
	ns     string
	pods   typedv1.PodInterface
}

func (k *kit) pod(name, node string) *corev1.Pod {
	k.t.Helper()
	return k.podOf(name, func(s *corev1.PodSpec) { s.NodeName = node })
}

// podOf makes a pod on a node after change, which may be nil, has been at its spec.
func (k *kit) podOf(name string, change func(*corev1.PodSpec)) *corev1.Pod {
	k.t.Helper()
	no := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "app"}}, AutomountServiceAccountToken: &no,
			RestartPolicy: corev1.RestartPolicyNever,
		},
	}
	if change != nil {
		change(&p.Spec)
	}
	p, err := k.pods.Create(k.ctx, p, metav1.CreateOptions{})
	if err != nil {
		k.t.Fatalf("create pod %s: %v", name, err)
	}
	return p
}

// causesOf are the fields that an answer names, each with why.
func causesOf(err error) []metav1.StatusCause {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Details == nil {
		return nil
	}
	return answer.Status().Details.Causes
}

// named says whether a cause is about a field and says so, as "field: why".
func named(c metav1.StatusCause, want string) bool {
	at, why, _ := strings.Cut(want, ": ")
	return c.Field == at && strings.Contains(c.Message, why)
}

func (k *kit) patchStatus(name, body string) (*corev1.Pod, error) {
	return k.pods.Patch(k.ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
}

func (k *kit) is(what string, err error, class func(error) bool) {
	k.t.Helper()
	if !class(err) {
		k.t.Errorf("%s: got %v (reason %q)", what, err, apierrors.ReasonForError(err))
	}
}

func (k *kit) works(what string, err error) {
	k.t.Helper()
	if err != nil {
		k.t.Errorf("%s: %v", what, err)
	}
}

func (k *kit) equal(what string, got, want any) {
	k.t.Helper()
	if got != want {
		k.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// next returns the next event of a watch that is no bookmark.
func (k *kit) next(w watch.Interface) watch.Event {
	k.t.Helper()
	for {
		select {
		case ev, open := <-w.ResultChan():
			if !open || ev.Type != watch.Bookmark {
				return ev
			}
		case <-time.After(20 * time.Second):
			k.t.Fatal("no event in 20 seconds")
		}
	}
}
