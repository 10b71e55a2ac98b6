package podsync

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/credentialprovider"
	"github.com/polylet/polylet/services/podsync/internal/runtime/image/pullrecord"
)

// puller makes what pulls images.
func (s *Service) puller() (*image.Puller, error) {
	cfg := s.cfg
	deps := image.Deps{Client: s.runtime, Secrets: s.objects, Events: s.events, Metrics: s.deps.Metrics}
	if cfg.VerifyPulls {
		s.pulls = pullrecord.New(pullrecord.Config{RootDir: cfg.RootDir, Policy: cfg.VerifyPolicy, Allowlist: cfg.VerifyAllowlist})
		deps.Records = s.pulls
	}
	if cfg.CredentialProviderConfig != "" {
		list, err := credentialprovider.Load(cfg.CredentialProviderConfig, cfg.CredentialProviderBinDir)
		if err != nil {
			return nil, err
		}
		with := credentialprovider.Deps{Metrics: s.deps.Metrics}
		if s.deps.Client != nil && cfg.CredentialProviderTokens {
			with.Accounts, with.Tokens = accounts{s.deps.Client}, s.tokens
		}
		deps.Providers = credentialprovider.New(credentialprovider.Config{BinDir: cfg.CredentialProviderBinDir, Providers: list, Fits: image.Fits}, with)
	}
	return image.New(image.Config{
		Parallel: cfg.MaxParallelPulls, QPS: cfg.PullQPS, Burst: cfg.PullBurst, CredentialFiles: credentialFiles(cfg.RootDir),
	}, deps), nil
}

// credentialFiles are the places of the node's registry credentials, the new
// form before the old one.
// Source: https://kubernetes.io/docs/concepts/containers/images/#using-a-private-registry
func credentialFiles(rootDir string) []string {
	home, _ := os.UserHomeDir() // none is no place to look
	var files []string
	add := func(name string, dirs ...string) {
		for _, dir := range dirs {
			if dir != "" {
				files = append(files, filepath.Join(dir, name))
			}
		}
	}
	docker := ""
	if home != "" {
		docker = filepath.Join(home, ".docker")
	}
	add("config.json", rootDir, ".", docker, "/.docker")
	add(".dockercfg", rootDir, ".", home, "/")
	return files
}

// accountTimeout bounds the read of a service account.
const accountTimeout = 10 * time.Second

// accounts reads service accounts from the apiserver, each time anew: what may
// be cached is what a plugin has answered.
type accounts struct{ client kubernetes.Interface }

func (a accounts) ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	return a.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

// recoverPulls deals, once the runtime answers, with pulls that a previous run
//
//	did not see the end of. Until then their images count as
//
// pulled, so that nobody may use them unverified.
func (s *Service) recoverPulls(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	retry := backoff.New(backoff.Config{Initial: time.Second, Max: time.Minute, Jitter: .2})
	for ctx.Err() == nil {
		var away error
		err := s.pulls.Recover(log, func(name string) (string, error) {
			img, err := s.runtime.Image(ctx, name)
			away = err
			return img.GetId(), err
		})
		if away == nil {
			if err != nil {
				log.Error(err, "Some records of image pulls could not be read or written; their images are verified when they are used")
			}
			return
		}
		_ = retry.Wait(ctx)
	}
}
