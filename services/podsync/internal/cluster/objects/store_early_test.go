package objects

import (
	"context"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

// Who asks before Run has begun, for the parts of a process begin in any order,
// waits to be told; without that a pod waits for its node until the node changes.
func TestTheFirstAnswerIsToldToWhomAskedBeforeRun(t *testing.T) {
	for name, early := range map[string]func(t *testing.T, s *Store){
		"own node": func(t *testing.T, s *Store) {
			if node := s.KnownNode(); node != nil {
				t.Errorf("nobody has asked the apiserver, and yet it is %v", node)
			}
		},
		"config map": func(t *testing.T, s *Store) {
			s.Hold(podWith("p", "settings"))
			if _, err := s.ConfigMap(t.Context(), "ns", "settings"); err == nil {
				t.Error("it does not exist, and yet it was read")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fakeapiserver.New(fakeapiserver.Config{})
				defer server.Close()
				store := New(Config{NodeName: "n"}, Deps{Client: server.Client()})
				told := map[Key]bool{}
				store.Subscribe(func(key Key, _ []types.UID) { told[key] = true })
				early(t, store)
				core := server.Admin().CoreV1()
				want := Key{Kind: Node, Name: "n"}
				if _, err := core.Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				if name == "config map" {
					want = Key{Kind: ConfigMap, Namespace: "ns", Name: "settings"}
					if _, err := core.ConfigMaps("ns").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- store.Run(ctx) }()
				synctest.Wait()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if !told[want] {
					t.Errorf("nobody was told of %s; told of %v", want, told)
				}
			})
		})
	}
}
