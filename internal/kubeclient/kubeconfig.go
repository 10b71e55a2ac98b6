package kubeclient

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/polylet/polylet/internal/fsatomic"
)

// WriteKubeconfig writes the kubeconfig as the kubelet does once it has a certificate:
// the apiserver of the bootstrap kubeconfig and the certificate in the store. It says
// whether it did. One that is good stays, and so does one whose certificate is better
// than nothing: until there is a certificate in the store nothing is written.
//
// Its writer must be root: whoever may change the kubeconfig says which apiserver
// podsync takes pods from.
func WriteKubeconfig(s Source, now time.Time) (written bool, err error) {
	if s.Bootstrap == "" || s.Kubeconfig == "" || s.Store.Dir == "" {
		return false, nil
	}
	r := s.read()
	if !needsKubeconfig(r, now) || isBeingWritten(r, now) {
		return false, nil
	}
	text, err := kubeconfigFor(s)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(s.Kubeconfig), 0o755); err != nil {
		return false, fmt.Errorf("write kubeconfig %s: %w", s.Kubeconfig, err)
	}
	if r.kubeconfigErr != nil && !errors.Is(r.kubeconfigErr, fs.ErrNotExist) {
		if _, err := fsatomic.SetAside(s.Kubeconfig); err != nil {
			return false, fmt.Errorf("set aside kubeconfig %s, which cannot be used: %w", s.Kubeconfig, err)
		}
	}
	return true, fsatomic.WriteFile(s.Kubeconfig, text, 0o600)
}

// writtenWithin is how long somebody may take to write a kubeconfig, which is empty or
// half of one meanwhile.
const writtenWithin = 30 * time.Second

// isBeingWritten says whether a kubeconfig that cannot be used may be a good one soon.
func isBeingWritten(r readings, now time.Time) bool {
	if r.kubeconfigErr == nil {
		return false
	}
	info, err := os.Stat(r.source.Kubeconfig)
	return err == nil && now.Sub(info.ModTime()).Abs() < writtenWithin
}

// needsKubeconfig says whether one has to be written: there is a certificate in the
// store, and the kubeconfig leads to none that is good.
func needsKubeconfig(r readings, now time.Time) bool {
	if r.stored == nil || r.bootstrap == nil || now.After(r.stored.Leaf.NotAfter) {
		return false
	}
	switch {
	case r.kubeconfig == nil:
		return true
	case !hasCertificate(r.kubeconfig):
		return false
	}
	return r.own == nil || now.After(r.own.Leaf.NotAfter)
}

// kubeconfigFor is the kubelet's kubeconfig, names and all.
func kubeconfigFor(s Source) ([]byte, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: s.Bootstrap}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, errors.New(unusable("bootstrap kubeconfig", s.Bootstrap, err))
	}
	cluster := &api.Cluster{Server: cfg.Host, TLSServerName: cfg.ServerName, InsecureSkipTLSVerify: cfg.Insecure, CertificateAuthority: cfg.CAFile}
	if cfg.CAFile == "" {
		cluster.CertificateAuthorityData = cfg.CAData
	}
	if proxy := proxyOf(cfg); proxy != nil {
		cluster.ProxyURL = string(proxy)
	}
	pair := s.Store.CurrentPath()
	out := api.Config{
		Clusters:       map[string]*api.Cluster{"default-cluster": cluster},
		AuthInfos:      map[string]*api.AuthInfo{"default-auth": {ClientCertificate: pair, ClientKey: pair}},
		Contexts:       map[string]*api.Context{"default-context": {Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"}},
		CurrentContext: "default-context",
	}
	text, err := clientcmd.Write(out)
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig %s: %w", s.Kubeconfig, err)
	}
	return text, nil
}
