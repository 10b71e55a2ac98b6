package pullrecord

import (
	"maps"
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// granted says whether what a pod has is among what is known to give access. by
// is what should be remembered beside it: the same credentials in another
// secret, or the same secret with new credentials; nil when nothing is new.
func granted(known, has Grant) (by *Grant, ok bool) {
	for _, mine := range has.KubernetesSecrets {
		for _, secret := range known.KubernetesSecrets {
			hash := mine.CredentialHash != "" && mine.CredentialHash == secret.CredentialHash
			place := sameSecret(mine, secret)
			switch {
			case hash && place:
				return nil, true
			case hash, place && mine.CredentialHash != "":
				return &Grant{KubernetesSecrets: []kubeletv1beta1.ImagePullSecret{mine}}, true
			}
		}
	}
	for _, mine := range has.KubernetesServiceAccounts {
		if slices.Contains(known.KubernetesServiceAccounts, mine) {
			return nil, true
		}
	}
	return nil, false
}

func sameSecret(a, b kubeletv1beta1.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}

// merge adds a grant to a grant. Access for all makes the rest meaningless.
func merge(old, more Grant) Grant {
	if old.NodePodsAccessible || more.NodePodsAccessible {
		return Grant{NodePodsAccessible: true}
	}
	out := Grant{
		KubernetesSecrets:         slices.Clone(old.KubernetesSecrets),
		KubernetesServiceAccounts: slices.Clone(old.KubernetesServiceAccounts),
	}
	for _, s := range more.KubernetesSecrets {
		at := slices.IndexFunc(out.KubernetesSecrets, func(o kubeletv1beta1.ImagePullSecret) bool { return sameSecret(o, s) })
		if at >= 0 {
			out.KubernetesSecrets[at] = s
		} else {
			out.KubernetesSecrets = append(out.KubernetesSecrets, s)
		}
	}
	for _, a := range more.KubernetesServiceAccounts {
		if !slices.Contains(out.KubernetesServiceAccounts, a) {
			out.KubernetesServiceAccounts = append(out.KubernetesServiceAccounts, a)
		}
	}
	slices.SortFunc(out.KubernetesSecrets, func(a, b kubeletv1beta1.ImagePullSecret) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
	})
	return out
}

// bound leaves out of a grant what is too much of it, but nothing of newest.
func bound(g, newest Grant) Grant {
	g.KubernetesSecrets = boundList(g.KubernetesSecrets, newest.KubernetesSecrets)
	g.KubernetesServiceAccounts = boundList(g.KubernetesServiceAccounts, newest.KubernetesServiceAccounts)
	return g
}

func boundList[T comparable](list, newest []T) []T {
	excess := len(list) - mostPulledWith
	return slices.DeleteFunc(list, func(item T) bool {
		if excess <= 0 || slices.Contains(newest, item) {
			return false
		}
		excess--
		return true
	})
}

// leaveOut drops names of an image, the first in their order, until there are not too
// many; keep stays.
func leaveOut(names map[string]Grant, keep string) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if len(names) <= mostNames {
			return
		}
		if name != keep {
			delete(names, name)
		}
	}
}

func equal(a, b Grant) bool {
	return a.NodePodsAccessible == b.NodePodsAccessible && slices.Equal(a.KubernetesSecrets, b.KubernetesSecrets) &&
		slices.Equal(a.KubernetesServiceAccounts, b.KubernetesServiceAccounts)
}

// Allowed says whether a list of names, which may end in "/*" for all below,
// has an image. Names are compared as they are written.
func Allowed(list []string, image string) bool {
	name := Repository(image)
	return slices.ContainsFunc(list, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasSuffix(prefix, "/") {
			return strings.HasPrefix(name, prefix)
		}
		return pattern == name
	})
}
