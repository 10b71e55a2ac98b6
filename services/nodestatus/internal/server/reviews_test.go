package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/services/nodestatus/internal/review"
)

// reviewing is nodestatus' server for the Node n1 with an apiserver.
func reviewing(t *testing.T, fault func(fakeapiserver.Request) fakeapiserver.Fault) (*Server, *fakeapiserver.Server) {
	t.Helper()
	api := fakeapiserver.New(fakeapiserver.Config{
		Tokens:    map[string]authnv1.UserInfo{"known": {Username: "alice", Groups: []string{"g"}, Extra: map[string]authnv1.ExtraValue{"k": {"v"}}}},
		Authorize: func(s authzv1.SubjectAccessReviewSpec) (bool, string) { return s.User == "alice", "because" },
		Faults:    fault,
	})
	return New(Deps{Reviews: review.New("n1", api.Client())}), api
}

func askToken(ctx context.Context, s *Server, token string) (*authnv1.TokenReview, *metav1.Status, error) {
	raw, err := (&authnv1.TokenReview{Spec: authnv1.TokenReviewSpec{Token: token}}).Marshal()
	if err != nil {
		return nil, nil, err
	}
	res, err := s.ReviewToken(ctx, &nodestatusv1.ReviewTokenRequest{TokenReview: raw})
	if err != nil {
		return nil, nil, err
	}
	answer, refusal := &authnv1.TokenReview{}, &metav1.Status{}
	return answer, refusal, errors.Join(answer.Unmarshal(res.GetTokenReview()), refusal.Unmarshal(res.GetRefusal()))
}

func askAccess(ctx context.Context, s *Server, spec authzv1.SubjectAccessReviewSpec) (*authzv1.SubjectAccessReview, error) {
	raw, err := (&authzv1.SubjectAccessReview{Spec: spec}).Marshal()
	if err != nil {
		return nil, err
	}
	res, err := s.ReviewAccess(ctx, &nodestatusv1.ReviewAccessRequest{SubjectAccessReview: raw})
	if err != nil {
		return nil, err
	}
	answer := &authzv1.SubjectAccessReview{}
	return answer, answer.Unmarshal(res.GetSubjectAccessReview())
}

func TestTheGatewayLearnsWhoSomebodyIsAndWhatTheyMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := reviewing(t, nil)
		defer api.Close()
		got, _, err := askToken(t.Context(), s, "known")
		if err != nil || !got.Status.Authenticated || got.Status.User.Username != "alice" || got.Status.User.Groups[0] != "g" || got.Status.User.Extra["k"][0] != "v" {
			t.Errorf("%+v %v", got, err)
		}
		if got, _, err = askToken(t.Context(), s, "guessed"); err != nil || got.Status.Authenticated {
			t.Errorf("a guessed token: %+v %v", got, err)
		}
		for _, user := range []string{"alice", "eve"} {
			what := &authzv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "proxy", Name: "n1", Version: "v1"}
			answer, err := askAccess(t.Context(), s, authzv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: what})
			if err != nil || answer.Status.Allowed != (user == "alice") {
				t.Errorf("%s: %+v %v", user, answer, err)
			}
		}
	})
}

func TestAReviewThatIsNotAboutThisNodeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := reviewing(t, nil)
		defer api.Close()
		for name, spec := range map[string]authzv1.SubjectAccessReviewSpec{
			"nothing":      {},
			"a path":       {NonResourceAttributes: &authzv1.NonResourceAttributes{Path: "/", Verb: "get"}},
			"another Node": {ResourceAttributes: &authzv1.ResourceAttributes{Resource: "nodes", Name: "n2"}},
			"all Nodes":    {ResourceAttributes: &authzv1.ResourceAttributes{Resource: "nodes"}},
			"a Secret":     {ResourceAttributes: &authzv1.ResourceAttributes{Resource: "secrets", Name: "n1", Namespace: "kube-system"}},
			"a group":      {ResourceAttributes: &authzv1.ResourceAttributes{Resource: "nodes", Group: "metrics.k8s.io", Name: "n1"}},
		} {
			spec.User = "alice"
			if _, err := askAccess(t.Context(), s, spec); !errors.Is(err, rpcerr.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := len(api.Requests()); n != 0 {
			t.Errorf("the apiserver was asked %d times", n)
		}
	})
}

func TestWhatTheApiserverRefusesIsPassedOnAndNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := reviewing(t, func(fakeapiserver.Request) fakeapiserver.Fault {
			return fakeapiserver.Fault{Status: http.StatusTooManyRequests, RetryAfter: 3 * time.Second}
		})
		defer api.Close()
		begin := time.Now()
		_, refusal, err := askToken(t.Context(), s, "known")
		if err != nil || refusal.Code != http.StatusTooManyRequests || refusal.Details == nil || refusal.Details.RetryAfterSeconds != 3 {
			t.Errorf("%+v %v", refusal, err)
		}
		if n := len(api.Requests()); n != 1 || time.Since(begin) > time.Second {
			t.Errorf("%d requests in %s", n, time.Since(begin))
		}
	})
}

func TestAnApiserverThatIsAwayIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := reviewing(t, func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Hang: true} })
		defer api.Close()
		begin := time.Now()
		if _, _, err := askToken(t.Context(), s, "known"); !errors.Is(err, rpcerr.ErrTimeout) || time.Since(begin) > 31*time.Second {
			t.Errorf("it hangs: %v after %s", err, time.Since(begin))
		}
		cut, other := reviewing(t, func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Drop: true} })
		defer other.Close()
		if _, _, err := askToken(t.Context(), cut, "known"); !errors.Is(err, rpcerr.ErrUnavailable) {
			t.Errorf("it cuts connections: %v", err)
		}
		alone := New(Deps{Reviews: review.New("n1", nil)})
		if _, _, err := askToken(t.Context(), alone, "known"); !errors.Is(err, rpcerr.ErrPrecondition) || !strings.Contains(err.Error(), "without an apiserver") {
			t.Errorf("standalone: %v", err)
		}
	})
}

func TestATakenOverGatewayCannotFloodTheApiserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := reviewing(t, func(fakeapiserver.Request) fakeapiserver.Fault { return fakeapiserver.Fault{Hang: true} })
		defer api.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var refused, other atomic.Int32
		var group sync.WaitGroup
		for range 1000 {
			group.Go(func() {
				if _, _, err := askToken(ctx, s, "invented"); errors.Is(err, rpcerr.ErrExhausted) {
					refused.Add(1)
				} else {
					other.Add(1)
				}
			})
		}
		synctest.Wait()
		if refused.Load() != 1000-192 || other.Load() != 0 {
			t.Errorf("%d are refused, %d have ended", refused.Load(), other.Load())
		}
		cancel()
		group.Wait()
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, _, err := askToken(short, s, "one"); errors.Is(err, rpcerr.ErrExhausted) {
			t.Errorf("places are not given back: %v", err)
		}
	})
}
