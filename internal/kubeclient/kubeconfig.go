package kubeclient

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/polylet/polylet/internal/fsatomic"
)

// WriteKubeconfig writes the kubeconfig as the kubelet does: the apiserver of the bootstrap
// kubeconfig and the certificate in the store, which need not be there yet. kubeadm takes
// the bootstrap kubeconfig away when it gives up, and nobody else knows where the apiserver
// is of which the certificate comes later. It says whether it wrote. A kubeconfig that is
// good stays, and so does one that somebody has made as long as there is no certificate in
// the store to put in the place of its own.
//
// Its writer must be root: whoever may change the kubeconfig says which apiserver
// podsync takes pods from.
func WriteKubeconfig(s Source, now time.Time) (written bool, err error) {
	if s.Bootstrap == "" || s.Kubeconfig == "" || s.Store.Dir == "" {
		return false, nil
	}
	r := s.read()
	if r.bootstrap == nil || !needsKubeconfig(r, now) || isBeingWritten(r, now) {
		return false, nil
	}
	text, err := kubeconfigFor(s)
	if err != nil {
		return false, err
	}
	if bytes.Equal(text, r.text) {
		return false, nil // it waits for the certificate
	}
	if err := os.MkdirAll(filepath.Dir(s.Kubeconfig), 0o755); err != nil {
		return false, fmt.Errorf("write kubeconfig %s: %w", s.Kubeconfig, err)
	}
	if r.kubeconfigErr != nil && !isAbsent(s.Kubeconfig, r.kubeconfigErr) {
		if _, err := fsatomic.SetAside(s.Kubeconfig); err != nil {
			return false, fmt.Errorf("set aside kubeconfig %s, which cannot be used: %w", s.Kubeconfig, err)
		}
	}
	fsatomic.Clean(filepath.Dir(s.Kubeconfig), filepath.Base(s.Kubeconfig)) // what a crash has left of a write
	err = fsatomic.WriteFile(s.Kubeconfig, text, 0o600)
	return err == nil, err
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

// needsKubeconfig says whether one has to be written: there is none, or it leads to no
// certificate that is good while the store has one, or it is an earlier one of these, for
// another apiserver, say, whose certificate is not there yet or has ended: the next one
// comes from where the bootstrap kubeconfig leads.
func needsKubeconfig(r readings, now time.Time) bool {
	good := r.stored != nil && !now.After(r.stored.Leaf.NotAfter)
	switch {
	case r.kubeconfig == nil:
		return good || isAbsent(r.source.Kubeconfig, r.kubeconfigErr)
	case !hasCertificate(r.kubeconfig):
		return false
	}
	current := absolute(r.source.Store.CurrentPath())
	ours := r.kubeconfig.CertFile == current
	if r.own != nil {
		return now.After(r.own.Leaf.NotAfter) && (good || ours && isNewer(r.source.Bootstrap, r.source.Kubeconfig))
	}
	// One that cannot be read comes back: nodestatus mends it, or takes it away.
	return good || ours && isAbsent(current, r.ownErr)
}

// isNewer says whether a file was written after another. A bootstrap kubeconfig that was
// left from before says nothing about where the apiserver is now.
func isNewer(file, than string) bool {
	a, err := os.Stat(file)
	b, otherErr := os.Stat(than)
	return err == nil && otherErr == nil && a.ModTime().After(b.ModTime())
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
	pair := absolute(s.Store.CurrentPath()) // a kubeconfig's paths begin where it lies
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

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
