// Package credentialprovider gets credentials for registries from the plugins that the
// node's administrator has configured: programs that are asked about an image
// and answer with user names and passwords.
//
// It owns the plugins' configuration, their runs and a cache of their answers
// in memory. It must never write an answer or a token to a log, a disk or a
// command line.
//
// Source: KEP-2133 (credential providers), KEP-4412 (service account tokens).
package credentialprovider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/polylet/polylet/services/podsync/internal/cluster/namespacelimit"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/reference"
)

// Accounts reads service accounts.
type Accounts interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
}

// Tokens gives service-account tokens; *serviceaccount.Cache has it.
type Tokens interface {
	Get(ctx context.Context, r serviceaccount.Request) (serviceaccount.Token, error)
}

// Config of a Set.
type Config struct {
	// BinDir holds the plugins' programs.
	BinDir string
	// Providers are the plugins, as Load returned them; earlier ones first.
	Providers []kubeletconfigv1.CredentialProvider
	// Fits says whether a pattern such as "*.example.com/team" is for an image.
	Fits func(pattern, image string) bool
}

// Deps are what a Set is given. Accounts and Tokens may be nil where there is
// no apiserver: plugins that require a service account are then passed over.
type Deps struct {
	Accounts Accounts
	Tokens   Tokens
	Metrics  prometheus.Registerer
}

// Answer is what one plugin answered.
type Answer struct {
	// Auth maps patterns of images to credentials.
	Auth map[string]credentialproviderv1.AuthConfig
	// Account is whose token the plugin was given; nil for none: then every pod
	// of the node would have got the same answer.
	Account *v1.ServiceAccount
}

// mostKept bounds the answers that are kept: a plugin may answer for one image alone,
// and who makes pods may name images without end.
const mostKept = 1000

// Set is the plugins of a node. Safe for concurrent use.
type Set struct {
	cfg     Config
	deps    Deps
	metrics *metrics
	flights singleflight.Group
	// asking bounds the runs for the pods of one namespace.
	asking namespacelimit.Pool

	mu    sync.Mutex
	cache map[string]cached
}

type cached struct {
	auth    map[string]credentialproviderv1.AuthConfig
	expires time.Time
}

// New makes a Set; it runs nothing.
func New(cfg Config, deps Deps) *Set {
	return &Set{cfg: cfg, deps: deps, metrics: newMetrics(deps.Metrics, cfg.Providers), cache: map[string]cached{}}
}

// Answers asks every plugin that is for an image, or takes from the cache what
// it said before. A plugin that fails is an error beside the others' answers.
func (s *Set) Answers(ctx context.Context, pod *v1.Pod, image string) (answers []Answer, errs []error) {
	if name, err := reference.Parse(image); err == nil {
		image = name.Repository() // plugins see registry and path, neither tag nor digest
	}
	for i := range s.cfg.Providers {
		p := &s.cfg.Providers[i]
		if !slices.ContainsFunc(p.MatchImages, func(m string) bool { return s.cfg.Fits(m, image) }) {
			continue
		}
		answer, err := s.ask(ctx, p, pod, image)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("credential provider %q: %w", p.Name, err))
		case answer != nil:
			answers = append(answers, *answer)
		}
	}
	return answers, errs
}

// ask asks one plugin; nil when it is not for the pod.
func (s *Set) ask(ctx context.Context, p *kubeletconfigv1.CredentialProvider, pod *v1.Pod, image string) (*Answer, error) {
	id, err := s.identify(ctx, p, pod)
	if err != nil || id == nil {
		return nil, err
	}
	if auth, ok := s.kept(p.Name, image, id.key, time.Now()); ok {
		return &Answer{Auth: auth, Account: id.account}, nil
	}
	// Each image of a pod is asked for at once, and each run is a process of root's.
	release, err := s.asking.Acquire(ctx, pod.Namespace)
	if err != nil {
		return nil, fmt.Errorf("many runs for namespace %s are under way: %w", pod.Namespace, err)
	}
	if auth, ok := s.kept(p.Name, image, id.key, time.Now()); ok {
		release()
		return &Answer{Auth: auth, Account: id.account}, nil
	}
	// Those who want the same share a run; whoever gives up does not end it.
	result := s.flights.DoChan(cacheKey(p.Name, "run", image, id.key), func() (any, error) {
		return s.run(context.WithoutCancel(ctx), p, image, id)
	})
	select {
	case r := <-result:
		release()
		if r.Err != nil {
			return nil, r.Err
		}
		return &Answer{Auth: r.Val.(map[string]credentialproviderv1.AuthConfig), Account: id.account}, nil
	case <-ctx.Done():
		go func() {
			<-result // it goes on for a minute at most, and so long counts
			release()
		}()
		return nil, ctx.Err()
	}
}

// identity is for whom a plugin is asked.
type identity struct {
	account     *v1.ServiceAccount
	token       string
	annotations map[string]string
	// key tells apart those who may not have each other's answers.
	key string
}

// identify gets the pod's service account and a token for it where the plugin
// wants them; nil without an error when the plugin is not to be asked.
func (s *Set) identify(ctx context.Context, p *kubeletconfigv1.CredentialProvider, pod *v1.Pod) (*identity, error) {
	want := p.TokenAttributes
	if want == nil {
		return &identity{}, nil
	}
	if pod.Spec.ServiceAccountName == "" || s.deps.Tokens == nil || s.deps.Accounts == nil {
		if *want.RequireServiceAccount {
			return nil, nil
		}
		return &identity{}, nil
	}
	account, err := s.deps.Accounts.ServiceAccount(ctx, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, fmt.Errorf("get service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	id := &identity{account: account, annotations: map[string]string{}}
	for _, k := range want.RequiredServiceAccountAnnotationKeys {
		value, ok := account.Annotations[k]
		if !ok {
			return nil, fmt.Errorf("service account %s/%s has no annotation %q, which the provider requires", account.Namespace, account.Name, k)
		}
		id.annotations[k] = value
	}
	for _, k := range want.OptionalServiceAccountAnnotationKeys {
		if value, ok := account.Annotations[k]; ok {
			id.annotations[k] = value
		}
	}
	t, err := s.deps.Tokens.Get(ctx, serviceaccount.Request{
		Namespace: pod.Namespace, ServiceAccount: account.Name, Audience: want.ServiceAccountTokenAudience, PodName: pod.Name, PodUID: pod.UID,
	})
	if err != nil {
		return nil, fmt.Errorf("get a token of service account %s/%s for audience %q: %w", account.Namespace, account.Name, want.ServiceAccountTokenAudience, err)
	}
	id.token = t.Value
	parts := []string{account.Namespace, account.Name, string(account.UID)}
	for _, k := range sorted(id.annotations) {
		parts = append(parts, k, id.annotations[k])
	}
	if want.CacheType == kubeletconfigv1.TokenServiceAccountTokenCacheType {
		sum := sha256.Sum256([]byte(t.Value))
		parts = append(parts, "token", hex.EncodeToString(sum[:]))
	}
	id.key = cacheKey(parts...)
	return id, nil
}

// run runs the plugin and keeps its answer as long as it says.
func (s *Set) run(ctx context.Context, p *kubeletconfigv1.CredentialProvider, image string, id *identity) (map[string]credentialproviderv1.AuthConfig, error) {
	began := time.Now()
	out, err := run(ctx, filepath.Join(s.cfg.BinDir, p.Name), p, &credentialproviderv1.CredentialProviderRequest{
		Image: image, ServiceAccountToken: id.token, ServiceAccountAnnotations: id.annotations,
	})
	s.metrics.ran(p.Name, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	life := p.DefaultCacheDuration.Duration
	if out.CacheDuration != nil {
		life = out.CacheDuration.Duration
	}
	if life > 0 {
		s.keep(cacheKey(p.Name, string(out.CacheKeyType), object(out.CacheKeyType, image), id.key), cached{out.Auth, time.Now().Add(life)})
	}
	return out.Auth, nil
}

// kept is what the plugin said before for the image, its registry or all.
func (s *Set) kept(provider, image, who string, now time.Time) (map[string]credentialproviderv1.AuthConfig, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range []credentialproviderv1.PluginCacheKeyType{
		credentialproviderv1.ImagePluginCacheKeyType, credentialproviderv1.RegistryPluginCacheKeyType, credentialproviderv1.GlobalPluginCacheKeyType,
	} {
		if c, ok := s.cache[cacheKey(provider, string(kind), object(kind, image), who)]; ok && now.Before(c.expires) {
			return c.auth, true
		}
	}
	return nil, false
}

// keep keeps an answer and forgets those that have expired, and any others when there
// are too many.
func (s *Set) keep(key string, c cached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for k, old := range s.cache {
		if !now.Before(old.expires) {
			delete(s.cache, k)
		}
	}
	for k := range s.cache {
		if len(s.cache) < mostKept {
			break
		}
		delete(s.cache, k)
	}
	s.cache[key] = c
}

// object is what of an image an answer is kept for.
func object(kind credentialproviderv1.PluginCacheKeyType, image string) string {
	switch kind {
	case credentialproviderv1.GlobalPluginCacheKeyType:
		return ""
	case credentialproviderv1.RegistryPluginCacheKeyType:
		if name, err := reference.Parse(image); err == nil {
			return name.Domain
		}
	}
	return image
}

// cacheKey joins texts so that no two lists give the same.
func cacheKey(parts ...string) string {
	key, _ := json.Marshal(parts) // texts cannot fail
	return string(key)
}

func sorted(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
