package review

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
)

var aboutThisNode = authzv1.SubjectAccessReviewSpec{User: "alice", ResourceAttributes: &authzv1.ResourceAttributes{Resource: "nodes", Name: "n1", Verb: "get"}}

func TestWithoutAnApiserverNobodyIsAsked(t *testing.T) {
	a := New("n1", nil)
	if _, _, err := a.Token(t.Context(), authnv1.TokenReviewSpec{Token: "t"}); !errors.Is(err, rpcerr.ErrPrecondition) {
		t.Errorf("a token: %v", err)
	}
	if _, _, err := a.Access(t.Context(), aboutThisNode); !errors.Is(err, rpcerr.ErrPrecondition) {
		t.Errorf("access: %v", err)
	}
}

func TestARefusalIsAnAnswerAndNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Status: http.StatusForbidden}
		}})
		defer api.Close()
		review, refusal, err := New("n1", api.Client()).Access(t.Context(), aboutThisNode)
		if err != nil || review != nil || refusal == nil || refusal.Code != http.StatusForbidden {
			t.Errorf("%+v %+v %v", review, refusal, err)
		}
	})
}

func TestAConnectionThatIsCutIsTriedNoMoreThanOnceAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapiserver.New(fakeapiserver.Config{Faults: func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Drop: true} }})
		defer api.Close()
		_, _, err := New("n1", api.Client()).Token(t.Context(), authnv1.TokenReviewSpec{Token: "t"})
		if n := len(api.Requests()); !errors.Is(err, rpcerr.ErrUnavailable) || n < 1 || n > 2 {
			t.Errorf("%v after %d requests", err, n)
		}
	})
}
