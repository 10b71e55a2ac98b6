package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/polylet/polylet/services/podsync/internal/runtime/image/pullrecord"
)

// credential is one that fits an image, with where it comes from: a secret, a
// service account, or neither, when it is the node's own.
type credential struct {
	auth    *runtimeapi.AuthConfig
	secret  *kubeletv1beta1.ImagePullSecret
	account *kubeletv1beta1.ImagePullServiceAccount
}

// credentials are found once, when somebody asks.
type credentials struct {
	list  []credential
	found bool
}

func (c *credentials) get(ctx context.Context, p *Puller, pod *v1.Pod, name string) []credential {
	if !c.found {
		c.list, c.found = p.credentials(ctx, pod, name), true
	}
	return c.list
}

// credentials collects what fits an image: from the pod's pull secrets in
// order, then from the node's file, then from the plugins; within each the
// longest match first.
func (p *Puller) credentials(ctx context.Context, pod *v1.Pod, name string) []credential {
	out := p.fromSecrets(ctx, pod, name)
	for _, auth := range p.fromFiles(ctx, name) {
		out = append(out, credential{auth: auth})
	}
	if p.deps.Providers == nil {
		return out
	}
	answers, errs := p.deps.Providers.Answers(ctx, pod, name)
	for _, err := range errs {
		klog.FromContext(ctx).Error(err, "A credential provider gave no credentials; the image is tried without", "image", name)
	}
	for _, answer := range answers {
		ks := keys{}
		for pattern, auth := range answer.Auth {
			ks[pattern] = entry{Username: auth.Username, Password: auth.Password}
		}
		var account *kubeletv1beta1.ImagePullServiceAccount
		if a := answer.Account; a != nil {
			account = &kubeletv1beta1.ImagePullServiceAccount{UID: string(a.UID), Namespace: a.Namespace, Name: a.Name}
		}
		for _, auth := range ks.match(name) {
			out = append(out, credential{auth: auth, account: account})
		}
	}
	return out
}

// mostSecrets is how many pull secrets of a pod are looked at, and mostOfSecrets how many
// credentials are taken from them for one image, each of which may be tried: a spec may name
// fifty thousand, or as often one that has as many keys which fit.
const mostSecrets, mostOfSecrets = 256, 100

func (p *Puller) fromSecrets(ctx context.Context, pod *v1.Pod, name string) (out []credential) {
	var missing []string
	looked := map[string]bool{}
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" || looked[ref.Name] {
			continue
		}
		if len(looked) == mostSecrets || len(out) == mostOfSecrets {
			klog.FromContext(ctx).Info("Not all pull secrets of a pod are looked at: name fewer, or let fewer of their keys fit the image",
				"pod", klog.KObj(pod), "image", name, "mostSecrets", mostSecrets, "mostCredentials", mostOfSecrets)
			break
		}
		looked[ref.Name] = true
		secret, ks, err := p.secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		fitting := ks.match(name)
		for _, auth := range fitting[:min(len(fitting), mostOfSecrets-len(out))] {
			out = append(out, credential{auth: auth, secret: &kubeletv1beta1.ImagePullSecret{
				UID: string(secret.UID), Namespace: secret.Namespace, Name: secret.Name, CredentialHash: hashOf(auth),
			}})
		}
	}
	if len(missing) > 0 {
		p.deps.Events.Pod(pod, v1.EventTypeWarning, eventSecretFailed, fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	return out
}

// fromFiles takes the first of the node's files that can be read and understood.
func (p *Puller) fromFiles(ctx context.Context, name string) []*runtimeapi.AuthConfig {
	for _, file := range p.cfg.CredentialFiles {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		ks, err := parse(data, !strings.HasSuffix(file, ".dockercfg"))
		if err == nil {
			return ks.match(name)
		}
		klog.FromContext(ctx).Info("The node's registry credentials cannot be understood; the next file is tried", "file", file)
	}
	return nil
}

func (p *Puller) secret(ctx context.Context, namespace, name string) (*v1.Secret, keys, error) {
	if p.deps.Secrets == nil {
		return nil, nil, fmt.Errorf("secret %s/%s: there is no apiserver to read it from", namespace, name)
	}
	s, err := p.deps.Secrets.Secret(ctx, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	var ks keys
	if data, ok := s.Data[v1.DockerConfigJsonKey]; ok && s.Type == v1.SecretTypeDockerConfigJson {
		ks, err = parse(data, true)
	} else if data, ok := s.Data[v1.DockerConfigKey]; ok && s.Type == v1.SecretTypeDockercfg {
		ks, err = parse(data, false)
	}
	return s, ks, err
}

// hashOf is the hash under which a credential is remembered.
func hashOf(a *runtimeapi.AuthConfig) string {
	data, err := json.Marshal(map[string]string{
		"username": a.GetUsername(), "password": a.GetPassword(), "identityToken": a.GetIdentityToken(), "registryToken": a.GetRegistryToken(),
	})
	if err != nil {
		return "" // matches nothing
	}
	return pullrecord.Hash(data)
}

// grantOf is what a pod has that may give it access to an image that is present.
func grantOf(creds []credential) (out pullrecord.Grant) {
	for _, c := range creds {
		if c.secret != nil {
			out.KubernetesSecrets = append(out.KubernetesSecrets, *c.secret)
		}
		if c.account != nil {
			out.KubernetesServiceAccounts = append(out.KubernetesServiceAccounts, *c.account)
		}
	}
	return out
}

// grant is what a pull with a credential proves: access for whoever has it, or
// for all pods when it is the node's or there was none.
func (c *credential) grant() pullrecord.Grant {
	switch {
	case c.secret != nil:
		return pullrecord.Grant{KubernetesSecrets: []kubeletv1beta1.ImagePullSecret{*c.secret}}
	case c.account != nil:
		return pullrecord.Grant{KubernetesServiceAccounts: []kubeletv1beta1.ImagePullServiceAccount{*c.account}}
	}
	return pullrecord.Grant{NodePodsAccessible: true}
}

// key tells apart pulls that may not share their result.
func (c *credential) key() string {
	return fmt.Sprint(c.auth.String(), c.secret, c.account)
}
