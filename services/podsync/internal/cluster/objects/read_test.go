package objects

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

func TestNodeServicesAndRuntimeClasses(t *testing.T) {
	inBubble(t, fakeapiserver.Config{}, func(t *testing.T, b *bench) {
		if _, err := b.admin.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, ns := range []string{"ns", "other"} {
			svc := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: ns}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.1"}}
			if _, err := b.admin.CoreV1().Services(ns).Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n, err := b.store.Node(t.Context()); err != nil || n.Name != "n" {
			t.Errorf("node %v, %v", n, err)
		}
		if l, err := b.store.Services(t.Context(), "ns"); err != nil || len(l) != 1 || l[0].Namespace != "ns" || l[0].Spec.ClusterIP != "10.0.0.1" {
			t.Errorf("services %v, %v", l, err)
		}
		if err := b.admin.CoreV1().Services("ns").Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l, err := b.store.Services(t.Context(), "ns"); err != nil || len(l) != 0 {
			t.Errorf("after its end: %v, %v", l, err)
		}
		if _, err := b.store.RuntimeClass(t.Context(), "x"); !apierrors.IsNotFound(err) {
			t.Errorf("runtime class: %v", err)
		}
	})
}
